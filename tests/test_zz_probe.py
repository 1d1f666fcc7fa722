import asyncio, json, hashlib, pytest, time
from case import case, KEY, CHAT, settings
from gateway import gateway, until
from upstream import *
import upstream, case as casemod
import aiohttp
H=lambda k: "sha256:"+hashlib.sha256(k.encode()).hexdigest()

async def get(url, key, path, method="GET", **kw):
    async with aiohttp.ClientSession() as s:
        async with s.request(method, url+path, headers={"authorization": f"Bearer {key}"}, **kw) as r:
            return r.status, dict(r.headers), await r.read()

YAML = """
providers:
  a: {kind: scripted, script: [{when: {model: gpt-a}, answer: {text: A}}]}
  b: {kind: scripted, script: [{when: {model: gpt-b}}, {when: {model: other-b}}]}
models:
  "gpt-*": {targets: [{provider: a}]}
  "*": {targets: [{provider: b}]}
teams:
  t: {keys: [{name: k, hash: "%s"}]}
""" % H("sg-"+"1"*40)

async def test_models(tmp_path):
    async with gateway(YAML, tmp_path) as g:
        print(await get(g.address.url, "sg-"+"1"*40, "/v1/models"))
        print(await get(g.address.url, "sg-"+"1"*40, "/v1/models/gpt-a"))
        # many headers
        async with aiohttp.ClientSession() as s:
            async with s.get(g.address.url+"/healthz", headers={f"x-{i}":"a" for i in range(300)}) as r:
                print(r.status, await r.read())

async def test_revoke_under_bad_yaml(tmp_path):
    k="sg-"+"2"*40
    (tmp_path/"spangate.keys.yaml").write_text(f"teams:\n  t:\n  - {{name: x, hash: '{H(k)}'}}\n")
    (tmp_path/"spangate.keys.yaml").chmod(0o600)
    async with gateway(YAML, tmp_path) as g:
        print((await get(g.address.url, k, "/v1/key"))[0])
        (tmp_path/"spangate.yaml").write_text("nonsense: 1\n")
        await asyncio.sleep(1.5)
        print((await get(g.address.url, k, "/readyz"))[2])
        (tmp_path/"spangate.keys.yaml").write_text("teams: {}\n")
        await asyncio.sleep(2.5)
        print("after revocation", (await get(g.address.url, k, "/v1/key"))[0])

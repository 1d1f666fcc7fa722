"""An agent under a gateway's policies, all in one process: each model call goes through the gateway of governed.yaml, which knows the
team and what it may use. Its provider is scripted, so it needs no key and no network:

    python examples/governed_agent.py

To the agent a gateway that runs elsewhere is the same: `OpenAIChatModel("fast", base_url=…, api_key=…)` with a key of the team.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from spangate.agent import Agent, GatewayModel, PolicyMiddleware, ScriptedModel, tool
from spangate.call.call import Caller
from spangate.call.errors import Refused
from spangate.policies.access import Access
from spangate.policies.time_limit import TimeLimit
from spangate.proxy import config
from spangate.proxy.gateway import Gateway
from spangate.proxy.upstream import Upstream

SEARCH = Caller(team="search", user="ann")


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"In {city} it rains."


async def through_the_gateway() -> None:
    upstream = Upstream()
    loaded = config.load(Path(__file__).with_name("governed.yaml"), environ={})
    gateway = Gateway(loaded, upstream)
    for name in ("fast", "strong"):
        model = GatewayModel(gateway.next_for(SEARCH, name), name, caller=SEARCH)
        await ask(f"through the gateway, {name}", Agent("guide", "Be brief.", model, [get_weather]))
    await upstream.aclose()


async def with_the_same_policies() -> None:
    """Without a gateway: its policies are middlewares, and hold for any model."""
    governed = PolicyMiddleware(Access(models=("fast",)), TimeLimit(first=10), caller=SEARCH)
    for name in ("fast", "strong"):
        model = ScriptedModel.saying("Take an umbrella.", model=name)
        await ask(f"with the same policies, {name}", Agent("guide", "Be brief.", model, [get_weather], [governed]))


async def ask(where: str, agent: Agent) -> None:
    try:
        answer = await agent("What should I take to Rome?")
    except Refused as refusal:
        print(f"{where}: refused, {refusal.code}")
    else:
        print(f"{where}: {answer.text}")


async def main() -> None:
    await through_the_gateway()
    await with_the_same_policies()


if __name__ == "__main__":
    asyncio.run(main())

"""The seed's tracing: its set-up, its agent and its custom span, in a process of their own, told to a collector.

The set-up names the collector's usual address, where nothing of ours may listen; a proxy, as any HTTP client knows it, leads there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span

import spangate

from otlp_sink import Sink, attributes
from program import environment
from seeds.sample import SEEDS

PROGRAM = """
import asyncio

from seeds.sample import run
from spangate.agent import ScriptedModel, Toolkit, calls, tool

provider = run("agentscope/tracing_setup").provider

@tool
def look() -> str:
    "Look."
    run("agentscope/custom_span", your_code=lambda span: span.set_attribute("seen", True))
    return "seen"

model = ScriptedModel.saying(calls("look"), "Done.", model="qwen-plus")
agent = run("agentscope/tracing", model=model, toolkit=Toolkit([look])).agent
print(asyncio.run(agent("Go.", thread="t")).text)
provider.shutdown()
"""


def test_one_tree_of_spans_with_the_custom_one_in_its_place(tmp_path: Path) -> None:
    with Sink() as sink:
        led = environment(tmp_path, PYTHONPATH=str(SEEDS.parent), http_proxy=sink.endpoint)
        program = [sys.executable, "-P", "-W", "error", "-c", PROGRAM]
        ran = subprocess.run(program, env=led, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
        assert (ran.stdout, ran.stderr) == ("Done.\n", "")
        spans = sink.wait_for_spans(5)
    assert {each.headers["host"] for each in sink.taken} == {"localhost:4318"}
    reply, tool, custom = (only(spans, name) for name in ("invoke_agent assistant", "execute_tool look", "your_span_name"))
    chats = [span for span in spans if span.name == "chat qwen-plus"]
    assert len(spans) == 3 + len(chats) == 5
    assert len({span.trace_id for span in spans}) == 1
    assert reply.parent_span_id == b""
    assert {span.parent_span_id for span in (*chats, tool)} == {reply.span_id}
    assert custom.parent_span_id == tool.span_id
    assert attributes(custom) == {"seen": True}
    told_of_the_reply(reply)
    told_of_a_model_call(chats[0])
    told_of_the_tool(tool)
    everything = b"".join(span.SerializeToString() for span in spans)
    assert not any(said in everything for said in (b"Go.", b"Done.", b"helpful")), "what was said stays out, unless asked for"


def only(spans: list[Span], name: str) -> Span:
    [found] = [span for span in spans if span.name == name]
    return found


def told_of_the_reply(span: Span) -> None:
    told = attributes(span)
    assert (told["gen_ai.operation.name"], told["gen_ai.agent.name"], told["gen_ai.conversation.id"]) == ("invoke_agent", "assistant", "t")


def told_of_a_model_call(span: Span) -> None:
    told = attributes(span)
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "qwen-plus")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) != (0, 0)


def told_of_the_tool(span: Span) -> None:
    told = attributes(span)
    assert (told["gen_ai.operation.name"], told["gen_ai.tool.name"]) == ("execute_tool", "look")
    assert told["gen_ai.tool.call.id"]


def test_the_custom_span_is_of_the_scope_that_the_page_names(tmp_path: Path) -> None:
    with Sink() as sink:
        led = environment(tmp_path, PYTHONPATH=str(SEEDS.parent), http_proxy=sink.endpoint)
        program = 'from seeds.sample import run\nprovider = run("agentscope/tracing_setup").provider\n'
        program += 'run("agentscope/custom_span", your_code=lambda span: None)\nprovider.shutdown()'
        subprocess.run([sys.executable, "-P", "-c", program], env=led, cwd=tmp_path, timeout=50, check=True)
        sink.wait_for_spans(1)
    [scope] = [parts.scope for parts in sink.taken[0].message.resource_spans[0].scope_spans]
    assert (scope.name, scope.version) == ("agentscope", spangate.__version__)

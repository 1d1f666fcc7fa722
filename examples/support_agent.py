"""A support agent: tools that are plain functions, a conversation that is remembered, an answer that is printed as it comes, and two
middlewares. It asks a scripted model, so it needs no key and no network:

    python examples/support_agent.py

For a real model put `OpenAIChatModel("gpt-5-mini")` in its place; nothing else changes.
"""

from __future__ import annotations

import asyncio

from spangate.agent import Agent, ReplyBudgetControlMiddleware, ScriptedModel, Stop, TextBlockDeltaEvent, ToolResultEndEvent, calls, tool

ORDERS = {"1042": "left the warehouse on Monday", "1043": "waits for a part"}


@tool(is_read_only=True)
def find_order(number: str) -> str:
    """Where an order is.

    Args:
        number: the order's number, four digits.
    """
    return f"Order {number} {ORDERS[number]}." if number in ORDERS else f"There is no order {number}."


@tool
def open_ticket(subject: str, urgent: bool = False) -> dict[str, object]:
    """Open a ticket for a colleague."""
    return {"ticket": 7, "subject": subject, "urgent": urgent}


def support(model: ScriptedModel) -> Agent:
    return Agent(
        "support",
        "Answer support questions concisely. Look things up before you answer.",
        model,
        [find_order, open_ticket],
        [
            Stop.when(lambda step: step.number >= 8),  # whatever happens, no ninth call
            ReplyBudgetControlMiddleware(token_budget=10_000, output_token_weight=4),
        ],
        thread="ann",
    )


SCRIPT = ScriptedModel.saying(
    # Two tools at once: they run side by side, and both results go back with the next call.
    {"tool_calls": [{"name": "find_order", "arguments": {"number": "1042"}}, {"name": "find_order", "arguments": {"number": "1043"}}]},
    "Order 1042 left on Monday; 1043 still waits for a part.",
    calls("open_ticket", subject="Order 1043 waits for a part", urgent=True),
    "I've opened ticket 7 for it.",
)


async def main() -> None:
    agent = support(SCRIPT)
    for question in ("Where are my orders 1042 and 1043?", "Please hurry the second one."):
        print(f"> {question}")
        async for event in agent.stream(question):
            if isinstance(event, TextBlockDeltaEvent):
                print(event.delta, end="")
            elif isinstance(event, ToolResultEndEvent):
                print(f"[a tool: {event.state}]")
        print()
    said = [msg.role for msg in await agent.history("ann")]
    print(f"The thread remembers {len(said)} messages: {', '.join(said)}.")


if __name__ == "__main__":
    asyncio.run(main())

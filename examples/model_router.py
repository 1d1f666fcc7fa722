"""A router between two models: for each reply a classifier chooses which of them makes it, by the descriptions. The classifier counts
words (BM25) and the models are scripted, so it needs no key and no network:

    python examples/model_router.py

A chat model can be the classifier as well, and any model a candidate.
"""

from __future__ import annotations

import asyncio

from spangate.agent import Agent, BM25Classifier, ChatModelCandidate, ModelRouterMiddleware, ScriptedModel

fast = ScriptedModel([{"answer": {"text": "You're welcome!"}}], model="small")
strong = ScriptedModel([{"answer": {"text": "The proof goes by induction."}}], model="large")

router = ModelRouterMiddleware(
    BM25Classifier(),
    [
        ChatModelCandidate(name="fast", model=fast, description="Small talk, thanks, greetings and other simple messages."),
        ChatModelCandidate(name="strong", model=strong, description="Hard tasks: a proof, mathematics, programming, planning in steps."),
    ],
)

agent = Agent("assistant", "You are a helpful assistant.", fast, middlewares=[router])


async def main() -> None:
    for question in ("Thanks, that was all!", "Find a proof that the sum of the first n odd numbers is n²."):
        reply = agent.stream(question)
        answer = await reply.result()
        print(f"> {question}\n{reply.view.steps[0].model}: {answer.text}")


if __name__ == "__main__":
    asyncio.run(main())

"""AgentScope's documentation, page 中间件 (Middleware), section 动态系统提示中间件 (dynamic system prompt). As it stands there: dynamic_context.txt."""

from datetime import datetime
from spangate.agent import Agent, MiddlewareBase

class DynamicContextMiddleware(MiddlewareBase):
    def __init__(self, context_fn):
        self._context_fn = context_fn

    async def on_system_prompt(self, agent, current_prompt):
        context = self._context_fn()
        return f"{current_prompt}\n\n## Current Context\n{context}"

agent = Agent(
    name="assistant",
    system_prompt="You are a helpful assistant.",
    model=model,
    middlewares=[
        DynamicContextMiddleware(
            lambda: f"Time: {datetime.now().isoformat()}"
        ),
    ],
)

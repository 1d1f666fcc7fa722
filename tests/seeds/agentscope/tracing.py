"""AgentScope's documentation, page 中间件 (Middleware), section 链路追踪 (tracing), and the same under 装备中间件 (equipping). As it stands there: tracing.txt."""

from spangate.agent import Agent
from spangate.agent import TracingMiddleware

agent = Agent(
    name="assistant",
    system_prompt="You are a helpful assistant.",
    model=model,
    toolkit=toolkit,
    middlewares=[TracingMiddleware()],
)

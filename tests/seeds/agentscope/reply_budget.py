"""AgentScope's documentation, page 中间件 (Middleware), section 预算控制 (budget control). As it stands there: reply_budget.txt."""

from spangate.agent import Agent
from spangate.agent import ReplyBudgetControlMiddleware

agent = Agent(
    name="assistant",
    system_prompt="You are a helpful assistant.",
    model=model,
    toolkit=toolkit,
    middlewares=[
        ReplyBudgetControlMiddleware(
            token_budget=10000,
            input_token_weight=1.0,
            output_token_weight=2.0,
        ),
    ],
)

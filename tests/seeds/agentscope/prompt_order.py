"""AgentScope's documentation, page 中间件 (Middleware), section 执行顺序 (order of execution), of transformers. As it stands there: prompt_order.txt."""

middlewares = [mw1, mw2]
# original_prompt → mw1.on_system_prompt() → mw2.on_system_prompt() → final

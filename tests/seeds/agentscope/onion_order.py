"""AgentScope's documentation, page 中间件 (Middleware), section 执行顺序 (order of execution), of onions. As it stands there: onion_order.txt."""

middlewares = [mw1, mw2]
# 调用顺序：
# mw1 前 → mw2 前 → 内部逻辑 → mw2 后 → mw1 后

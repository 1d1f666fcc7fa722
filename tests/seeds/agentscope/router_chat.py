"""AgentScope's documentation, page 中间件 (Middleware), section 模型路由 (model routing), by a chat model. As it stands there: router_chat.txt."""

import os
from spangate.agent import ChatModelCandidate, ModelRouterMiddleware
from spangate.agent import ScriptedModel

fast = ScriptedModel(fast_script, model="qwen-plus")
strong = ScriptedModel(
    model="qwen3-235b-a22b-thinking-2507",
)

router = ModelRouterMiddleware(
    # 路由模型也可以是任意对话模型，通过结构化输出完成选择
    classifier_model=fast,
    candidates=[
        ChatModelCandidate(name="fast", model=fast, description="日常问答与简单任务"),
        ChatModelCandidate(name="strong", model=strong, description="需要多步推理的复杂任务"),
    ],
    # 可选：自定义路由指令
    instructions="Select the most suitable chat model for the user input.",
)

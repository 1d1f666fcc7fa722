"""AgentScope's documentation, page 中间件 (Middleware), section 模型路由 (model routing), by a classifier. As it stands there: router_classifier.txt."""

import os
from spangate.agent import Agent
from spangate.agent import BM25Classifier
from spangate.agent import ChatModelCandidate, ModelRouterMiddleware
from spangate.agent import ScriptedModel

fast = ScriptedModel(fast_script, model="qwen-plus")
strong = ScriptedModel(
    model="qwen3-235b-a22b-thinking-2507",
)

router = ModelRouterMiddleware(
    # 路由模型：基于 TypeSafe API 的 Jev 分类模型
    classifier_model=BM25Classifier(
    ),
    # 候选模型：name 是分类模型返回的名称，description 说明何时选择它
    candidates=[
        ChatModelCandidate(
            name="fast",
            model=fast,
            description="日常问答与简单任务",
        ),
        ChatModelCandidate(
            name="strong",
            model=strong,
            description="需要多步推理、编程或数学的复杂任务",
        ),
    ],
)

agent = Agent(
    name="assistant",
    system_prompt="You are a helpful assistant.",
    # 路由失败时使用的默认模型
    model=fast,
    middlewares=[router],
)

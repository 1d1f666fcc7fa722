"""AgentScope's documentation, page 中间件 (Middleware), section 控制智能体流程 (controlling the agent's flow). As it stands there: continue_once.txt."""

from collections.abc import AsyncGenerator, Callable

from spangate.agent import Agent
from spangate.agent import AgentEvent, ReplyEndEvent
from spangate.agent import HintBlock, Msg
from spangate.agent import MiddlewareBase
from spangate.agent import ReplyFinishedReason


class ContinueOnceMiddleware(MiddlewareBase):
    async def on_reply(
        self,
        agent: Agent,
        input_kwargs: dict,
        next_handler: Callable[..., AsyncGenerator[AgentEvent | Msg, None]],
    ) -> AsyncGenerator[AgentEvent | Msg, None]:
        continued = False
        async for item in next_handler(**input_kwargs):
            can_continue = (
                isinstance(item, ReplyEndEvent)
                and item.finished_reason
                in {
                    ReplyFinishedReason.COMPLETED,
                    ReplyFinishedReason.EXCEED_MAX_ITERS,
                }
                and not continued
            )
            if can_continue:
                continued = True
                agent.state.cur_iter = min(
                    agent.state.cur_iter,
                    agent.react_config.max_iters - 1,
                )
                agent.state.append_context(
                    agent.name,
                    [HintBlock(hint="结束前请再检查一遍结果。")],
                )
                continue  # 吞掉 ReplyEndEvent，进入下一轮
            yield item

"""AgentScope's documentation, page 中间件 (Middleware), section 添加自定义 Span (a custom span). As it stands there: custom_span.txt."""

from opentelemetry import trace
from spangate import __version__

tracer = trace.get_tracer("agentscope", __version__)

with tracer.start_as_current_span(
    name="your_span_name",
    attributes={
        # 附加到 span 上的可选键值对，
        # 例如函数名、入参或任何自定义元数据。
    },
    end_on_exit=True,
) as span:
    # 你的代码
    your_code(span)

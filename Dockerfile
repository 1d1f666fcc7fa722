# The gateway as an image: what lock/runtime.txt pins, by its hashes, and the package; no compiler, no pip, no shell needed, no root.
#
#     docker build -t spangate .
#     docker run --rm -p 127.0.0.1:8484:8484 -v ./:/data -e OPENAI_API_KEY spangate      (with a spangate.yaml that has teams in ./)

FROM python:3.13.14-slim-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source

# Both lists first, so that a change of the code installs nothing again.
COPY lock/build.txt lock/runtime.txt lock/
RUN pip install --require-hashes -r lock/build.txt \
 && python -m venv --without-pip /opt/spangate \
 && pip --python /opt/spangate/bin/python install --require-hashes --only-binary :all: -r lock/runtime.txt

COPY pyproject.toml README.md LICENSE __init__.py py.typed ./
COPY agent agent
COPY call call
COPY exporters exporters
COPY policies policies
COPY proxy proxy
RUN pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
 && pip --python /opt/spangate/bin/python install --no-deps --no-index /wheels/*.whl

FROM python:3.13.14-slim-trixie
LABEL org.opencontainers.image.title="spangate" \
      org.opencontainers.image.description="An OpenTelemetry-first observability and governance proxy for model traffic" \
      org.opencontainers.image.licenses="Apache-2.0"

# Any uid may run it, such as a platform's own: what is written lies in /data, which group 0 may write.
RUN useradd --uid 10001 --gid 0 --home-dir /data --no-create-home --shell /usr/sbin/nologin spangate \
 && install --directory --owner 10001 --group 0 --mode 0770 /data
COPY --from=build /opt/spangate /opt/spangate

# 0.0.0.0: a container's loopback is nobody's. The gateway then wants a team with a key, or to be told --open.
ENV PATH=/opt/spangate/bin:$PATH HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SPANGATE_HOST=0.0.0.0
WORKDIR /data
VOLUME /data
EXPOSE 8484
USER 10001:0
STOPSIGNAL SIGTERM

# No curl: Python asks, without looking at a proxy's variables. /readyz is 503 until what an earlier process left is in the database.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --start-interval=1s --retries=3 \
  CMD ["python", "-ISc", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('SPANGATE_PORT', '8484')), timeout=2); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]

ENTRYPOINT ["spangate"]
CMD ["serve"]

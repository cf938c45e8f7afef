# docker build -t neus .                        for the CPU
# docker build -t neus --build-arg DEVICE=cuda .    for NVIDIA cards, driver 580 or newer: docker run --gpus all ...
#
# docker run --rm -v "$PWD:/work" -v neus-cache:/cache neus --mode reconstruct --images photos --minutes 10
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm AS base
# Jittor compiles its kernels with g++ on the machine where they run, and keeps them in /cache.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*

FROM base
ARG DEVICE=cpu
WORKDIR /src
COPY requirements.txt requirements-cuda.txt ./
RUN pip install --no-cache-dir -r requirements.txt \
    && pip install --no-cache-dir --no-deps "jittor>=1.3.11,<1.3.12" \
    && if [ "$DEVICE" = cuda ]; then pip install --no-cache-dir -r requirements-cuda.txt; fi
COPY . .
RUN pip install --no-cache-dir --no-deps . && rm -rf /src
ENV HOME=/cache NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["neus"]

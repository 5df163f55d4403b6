# syntax=docker/dockerfile:1
# docker build --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" -t quita:0.1.0 .
# See docs/operating/image.md: what it needs to run, and what was tried.
ARG BUILD_IMAGE=rust:1.95-bookworm
# glibc, libgcc, certificates and a user without a name's rights: no shell, no package manager.
ARG RUN_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
# The mounts outlive this build: a change of quita's own code compiles quita alone.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin quita \
    && install -D -m 0755 target/release/quita /out/usr/local/bin/quita \
    # The volume's folder, owned by who runs: a named volume takes its owner over.
    && install -d -m 0700 -o 65532 -g 65532 /out/var/lib/quita

FROM ${RUN_IMAGE}
COPY --from=build /out/ /
ENV QUITA_LISTEN=0.0.0.0:8080 \
    QUITA_DATA_DIR=/var/lib/quita \
    QUITA_LOG_FORMAT=json
USER 65532:65532
VOLUME /var/lib/quita
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=10s --retries=3 CMD ["/usr/local/bin/quita", "health"]
# No shell in between: signals reach the server.
ENTRYPOINT ["/usr/local/bin/quita"]
CMD ["serve"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="quita" \
      org.opencontainers.image.description="An HTTP REST queue with explicit ack and nack" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"

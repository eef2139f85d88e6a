# A static binary and certificates: no shell, no package manager, no root user.
FROM rust:1.95-alpine AS build
# SQLite, ring and mimalloc are compiled from C.
RUN apk add --no-cache ca-certificates gcc make musl-dev
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package redrive-server \
    && cp target/release/redrive /redrive \
    && mkdir /data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /redrive /redrive
COPY --from=build --chown=65532:65532 /data /data
# SQLite's temporary files go to the working folder: the image has no /tmp.
WORKDIR /data
USER 65532:65532
VOLUME /data
ENV REDRIVE_LOG_FORMAT=json
EXPOSE 7373
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/redrive", "health"]
ENTRYPOINT ["/redrive"]
CMD ["serve", "--listen", "0.0.0.0:7373", "--data", "/data"]

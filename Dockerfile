FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -pgo=cmd/threadsvc/threadsvc.pgo -o /threadsvc ./cmd/threadsvc

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /threadsvc /threadsvc
EXPOSE 8980
ENTRYPOINT ["/threadsvc"]
CMD ["serve", "--listen", "0.0.0.0:8980"]

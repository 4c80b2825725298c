package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// ServerConfig is what a Server can be told. Zero fields mean the defaults.
type ServerConfig struct {
	// MaxRequestBytes bounds one request message.
	MaxRequestBytes int
	// DrainTimeout bounds how long a shutdown waits for calls that are under way.
	DrainTimeout time.Duration
	// HealthInterval is how often readiness is looked at, HealthTimeout how long the database may take to answer then.
	HealthInterval, HealthTimeout time.Duration
}

func (c ServerConfig) withDefaults() ServerConfig {
	orElse(&c.MaxRequestBytes, 32<<20)
	orElse(&c.DrainTimeout, 20*time.Second)
	orElse(&c.HealthInterval, 2*time.Second)
	orElse(&c.HealthTimeout, 5*time.Second)
	return c
}

// Server is the gRPC server of a Service, with health, reflection, and connections that survive NAT.
type Server struct {
	cfg     ServerConfig
	service *Service
	grpc    *grpc.Server
	health  *health.Server
}

// NewServer returns a server for a service. Serve runs it.
func NewServer(s *Service, cfg ServerConfig) *Server {
	cfg = cfg.withDefaults()
	v := &Server{cfg: cfg, service: s, health: health.NewServer()}
	v.grpc = grpc.NewServer(
		grpc.ForceServerCodecV2(newEventCodec()),
		grpc.MaxRecvMsgSize(cfg.MaxRequestBytes),
		grpc.MaxConcurrentStreams(10_000),
		// Windows are fixed, so that a connection holds no more than this of what nobody has read yet.
		grpc.InitialWindowSize(1<<20),
		grpc.InitialConnWindowSize(4<<20),
		// A context of ordinary size is one write. The buffer is a connection's only while it writes.
		grpc.WriteBufferSize(128<<10),
		grpc.SharedWriteBuffer(true),
		// A minute is below what NAT gateways and load balancers commonly forget idle connections after.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(v.recoverUnary),
		grpc.StreamInterceptor(v.recoverStream),
		grpc.WaitForHandlers(true),
	)
	threadsvcv1.RegisterThreadServiceServer(v.grpc, s)
	threadsvcv1.RegisterHistoryServiceServer(v.grpc, s)
	threadsvcv1.RegisterRetentionServiceServer(v.grpc, s)
	grpc_health_v1.RegisterHealthServer(v.grpc, v.health)
	reflection.Register(v.grpc)
	return v
}

// Serve accepts connections until the context ends, and then stops in steps: readiness goes down, the streams are told
// to end, calls under way are waited for, and what is left after the drain timeout is cut off. It owns the listener, and
// returns when nothing of the server runs any more.
func (v *Server) Serve(ctx context.Context, listener net.Listener) error {
	watch, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		v.watchHealth(watch)
	}()
	served := make(chan error, 1)
	go func() { served <- v.grpc.Serve(listener) }()
	var err error
	select {
	case err = <-served:
		stopWatching()
		v.stop()
	case <-ctx.Done():
		stopWatching()
		v.stop()
		err = <-served
	}
	<-watched
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return err
}

// stop drains the server. GracefulStop alone never returns while an idle stream is open.
func (v *Server) stop() {
	v.health.Shutdown()
	v.service.Drain()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		v.grpc.GracefulStop()
	}()
	select {
	case <-stopped:
	case <-time.After(v.cfg.DrainTimeout):
		v.grpc.Stop()
		<-stopped
	}
}

// watchHealth keeps readiness true to whether the store can serve.
func (v *Server) watchHealth(ctx context.Context) {
	ticker := time.NewTicker(v.cfg.HealthInterval)
	defer ticker.Stop()
	serving := false
	v.setServing(false)
	for {
		pingCtx, cancel := context.WithTimeout(ctx, v.cfg.HealthTimeout)
		err := v.service.store.Ping(pingCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if ok := err == nil; ok != serving {
			serving = ok
			v.setServing(ok)
			if ok {
				v.service.cfg.Logger.Info("ready")
			} else {
				v.service.cfg.Logger.Warn("not ready", "error", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// setServing publishes readiness, for the server as a whole and for its services.
func (v *Server) setServing(ok bool) {
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ok {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	v.health.SetServingStatus("", state)
	v.health.SetServingStatus(threadsvcv1.ThreadService_ServiceDesc.ServiceName, state)
	v.health.SetServingStatus(threadsvcv1.HistoryService_ServiceDesc.ServiceName, state)
	v.health.SetServingStatus(threadsvcv1.RetentionService_ServiceDesc.ServiceName, state)
}

func (v *Server) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer v.recovered(info.FullMethod, &err)
	resp, err = handler(ctx, req)
	return resp, v.finalError(ctx, err)
}

func (v *Server) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer v.recovered(info.FullMethod, &err)
	return v.finalError(stream.Context(), handler(srv, stream))
}

// finalError gives a reason to what has none yet, such as a failure to send. A store that was waited for until the caller's
// own time was up is not the database's fault.
func (v *Server) finalError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	final := statusOf(err, v.service.cfg.Logger)
	if ctx.Err() != nil && final.Code() == codes.Unavailable {
		final = statusOf(ctx.Err(), v.service.cfg.Logger)
	}
	return final.Err()
}

// recovered turns a panic of a handler into an internal error, so that one call cannot take the server down.
func (v *Server) recovered(method string, err *error) {
	if r := recover(); r != nil {
		v.service.cfg.Logger.Error("panic", "method", method, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = refuse(threadsvcv1.ErrorReason_ERROR_REASON_INTERNAL, "internal error").status().Err()
	}
}

// Command kubelet stands for the kubelet of every node of a rehearsal: it answers what `kubectl exec` and `kubectl logs`
// ask of one, for pods that are local machines of the rehearsal. It runs no pods.
//
// The API server is its only client, and shows the certificate that --client-ca has signed.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/remotecommand"
	exec "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
)

const (
	// As the kubelet's own --streaming-connection-idle-timeout, and the time in which a client opens its streams
	// (k8s.io/kubernetes/pkg/kubelet/cri/streaming/remotecommand).
	idleTimeout           = 4 * time.Hour
	streamCreationTimeout = 30 * time.Second
)

func main() {
	address := flag.String("listen", "", "`address:port` to serve at")
	certificate := flag.String("cert", "", "`file` of the serving certificate")
	key := flag.String("key", "", "`file` of its private key")
	authority := flag.String("client-ca", "", "`file` of the authority that the API server's certificate is from")
	table := flag.String("pods", "", "`file` of the table of pods (JSON)")
	flag.Parse()

	pem, err := os.ReadFile(*authority)
	if err != nil {
		log.Fatal(err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(pem) {
		log.Fatalf("%s: no certificate in it", *authority)
	}
	server := &http.Server{
		Addr:              *address,
		Handler:           routes(*table),
		ReadHeaderTimeout: streamCreationTimeout,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs:  clients,
			// SPDY takes the connection over, which HTTP/2 has no way to do.
			NextProtos: []string{"http/1.1"},
		},
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}

func routes(table string) http.Handler {
	mux := http.NewServeMux()
	serve := func(response http.ResponseWriter, request *http.Request) {
		options, err := exec.NewOptions(request)
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		pod, err := find(table, request)
		if err != nil {
			http.Error(response, err.Error(), http.StatusNotFound)
			return
		}
		exec.ServeExec(response, request, pod, pod.name, "", request.PathValue("container"), request.Form["command"],
			options, idleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	}
	mux.HandleFunc("POST /exec/{namespace}/{pod}/{container}", serve)
	mux.HandleFunc("GET /exec/{namespace}/{pod}/{container}", serve)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(response http.ResponseWriter, request *http.Request) {
		pod, err := find(table, request)
		if err != nil {
			// The API server passes the text of this one on, and that of a 404 not.
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		pod.logs(response, request)
	})
	return mux
}

// The training operator, set up as its own main does it, but for the limits on its requests, which are flags here.
package main

import (
	"flag"
	"log"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/cert"
	"github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
)

func main() {
	qps := flag.Float64("kube-api-qps", 20, "requests per second")
	burst := flag.Int("kube-api-burst", 30, "requests at once")
	metricsAddress := flag.String("metrics-bind-address", ":8080", "of the metrics")
	probeAddress := flag.String("health-probe-bind-address", ":8081", "of the probes")
	webhookPort := flag.Int("webhook-server-port", 9443, "of the webhooks")
	flag.Parse()

	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	must(kubeflowv1.AddToScheme(scheme))

	client := ctrl.GetConfigOrDie()
	client.QPS, client.Burst = float32(*qps), *burst
	manager, err := ctrl.NewManager(client, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: *metricsAddress},
		WebhookServer:          webhook.NewServer(webhook.Options{Port: *webhookPort}),
		HealthProbeBindAddress: *probeAddress,
	})
	must(err)
	ready := make(chan struct{})
	must(cert.ManageCerts(manager, cert.Config{
		WebhookSecretName:        "training-operator-webhook-cert",
		WebhookServiceName:       "training-operator",
		WebhookConfigurationName: "validator.training-operator.kubeflow.org",
	}, ready))
	must(manager.AddReadyzCheck("readyz", manager.GetWebhookServer().StartedChecker()))
	go setUp(manager, ready)
	must(manager.Start(ctrl.SetupSignalHandler()))
}

// setUp begins the controllers and webhooks of all kinds, once there are certificates.
func setUp(manager ctrl.Manager, ready <-chan struct{}) {
	<-ready
	kinds := controllerv1.EnabledSchemes{}
	kinds.FillAll()
	for _, kind := range kinds {
		must(controllerv1.SupportedSchemeReconciler[kind](manager, common.GenNonGangSchedulerSetupFunc(), 1))
		must(webhooks.SupportedSchemeWebhook[kind](manager))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

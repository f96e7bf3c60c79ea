"""What `up` waits for inside Kubernetes and Slurm, each as a resource of the stack."""

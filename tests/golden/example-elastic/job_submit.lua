dofile("/etc/slurm/submissions.lua")

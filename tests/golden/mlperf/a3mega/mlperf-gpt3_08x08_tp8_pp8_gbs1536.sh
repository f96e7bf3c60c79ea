#!/bin/bash
# Trains MLPerf's GPT-3 on 8 nodes.
#SBATCH --job-name=mlperf-gpt3_08x08_tp8_pp8_gbs1536
#SBATCH --partition=a3mega
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=1200
#SBATCH --output=/gpt3/logs/%j_gpt3_08x08_tp8_pp8_gbs1536.out
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --cpus-per-task=26

set -euo pipefail

DATA=/gpt3
ENVIRONMENT=/opt/apps/hpc/env.sh
IMAGE=/gpt3/images/llm_megatron_1.sqsh
CHECKPOINT=/gpt3/checkpoint
TENSOR=8
PIPELINE=8
MICRO=1
BATCH=1536
EXTERNAL_STEPS=4000
EXTERNAL_BATCH=1536
SEED=18384
EXIT_MINUTES=1185

# Training runs in the benchmark's container.
if [[ $(srun --help 2>&1) != *--container-image* ]]; then
    echo "error: srun on ${SLURMD_NODENAME:-this machine} has no --container-image" >&2
    echo "to do: run the benchmark on a cluster with enroot and pyxis" >&2
    exit 1
fi
# Since 22.05 srun does not take the number of CPUs of a task from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# Trains GPT-3 with Megatron-LM. The options are those of run_gpt3.sh in the benchmark's code; sizes are given.
# shellcheck source=/dev/null
. "$ENVIRONMENT"
code=$DATA/training/large_language_model/megatron-lm
# The folder itself, which may be a link, or one below it that an archive had.
found=$(find -H "$CHECKPOINT" -maxdepth 3 -name metadata.json -print -quit)
if [[ -z $found ]]; then
    echo "error: no metadata.json below $CHECKPOINT: it is no checkpoint of GPT-3" >&2
    exit 1
fi
checkpoint=${found%/metadata.json}
out=$DATA/results/$SLURM_JOB_ID
mkdir -p "$out/checkpoints" "$out/tensorboard"
text=$DATA/dataset/preprocessed_c4_spm
options=(
    --tensor-model-parallel-size "$TENSOR" --pipeline-model-parallel-size "$PIPELINE" --sequence-parallel
    --micro-batch-size "$MICRO" --global-batch-size "$BATCH" --recompute-activations --bf16
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
    --train-samples 20000000 --lr-warmup-samples 407040 --lr-decay-samples 166809600 --lr 2.0e-5 --min-lr 2.0e-6
    --lr-decay-style cosine --log-interval 1 --eval-iters -1 --eval-interval $(((24576 + BATCH - 1) / BATCH))
    --attention-dropout 0.0 --hidden-dropout 0.0 --do-layernorm-bias-weight-decay --no-scaled-init --loss-scale 1.0
    --train-data-path 0.5 "$text/c4_en_6_c4_spm_text_document" 0.5 "$text/c4_en_7_c4_spm_text_document"
    --valid-data-path 1.00 "$text/c4_en_validation_subset_c4_spm_text_document" --split "100,0,0"
    --vocab-file "$DATA/dataset/bpe/vocab.json" --merge-file "$DATA/dataset/bpe/merges.txt"
    --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006
    --log-params-norm --log-num-zeros-in-grad --log-validation-ppl-to-tensorboard --tensorboard-dir "$out/tensorboard"
    --DDP-impl local --no-query-key-layer-scaling --no-seq-len-plus-one-tokens --seed "$SEED"
    --save "$out/checkpoints" --save-interval 500 --exit-duration-in-mins "$EXIT_MINUTES"
    --load "$checkpoint" --no-load-rng --use-ext-ckpt
    --ext-iterations $((EXTERNAL_STEPS * EXTERNAL_BATCH / BATCH)) --ext-lr-steps $((EXTERNAL_STEPS * EXTERNAL_BATCH))
)
container=(
    --container-image="$IMAGE" --container-writable --container-workdir="$code"
    --container-mounts="$DATA:$DATA,$CHECKPOINT:$CHECKPOINT,$HPC_CONTAINER_MOUNTS"
)
# The checkpoint in BF16 is NeMo's: Megatron-LM needs a common.pt of its own beside it (README.md of the benchmark).
if [[ ! -e $checkpoint/.hpc-common ]]; then
    srun --nodes=1 --ntasks=1 "${container[@]}" \
        python scripts/json_to_torch.py -i scripts/common_bf16.json -o "$checkpoint/common.pt"
    touch "$checkpoint/.hpc-common"
fi
start=$(date +%s) began=$(date '+%F %r')
# The container has its own LD_LIBRARY_PATH: env.sh, read there again, puts the libraries of the network before it.
# Megatron-LM reads RANK and WORLD_SIZE, which Slurm has under other names.
# shellcheck disable=SC2016
srun --label "${container[@]}" --container-env="$HPC_CONTAINER_ENV" \
    bash -c '. "$0" || exit 1
        export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
        exec python -u pretrain_gpt.py "$@"' "$ENVIRONMENT" "${options[@]}"
echo "RESULT,gpt3,$(($(date +%s) - start)),$USER,$began"

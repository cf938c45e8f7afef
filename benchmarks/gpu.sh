#!/usr/bin/env bash
# Measure a machine with an NVIDIA GPU and no network with one command, in the root of the checkout:
#   bash benchmarks/gpu.sh pack          on a machine with pip: create .gpu/ (at most 50 MiB) with packages for Python
#                                        3.12 and the scenes bunny and lego, if they are in public_data/
#   bash benchmarks/gpu.sh pack SCENES   the same with both scenes, which must be in the folder SCENES
#   bash benchmarks/gpu.sh               on the machine with the GPU: all stages below, the most informative first
# Each stage has its own time limit, and a failed stage does not stop the next. Results: gpu-results/ (OUT), with
# results.json and results.md; those of an earlier run are moved to a subfolder.
# PYTHON: the interpreter. PEER: a checkout of the published code, timed too if PYTHON or PEER_PYTHON has PyTorch.
# Ctrl-C, or a closed terminal, ends the stage and the run; the results so far are reported.
# DEVICE=cpu tests all stages without a GPU, at sizes whose results are meaningless.
# STAGES="parity steps" runs only these stages, of the names below, after an earlier call has unpacked the packages.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
DEVICE=${DEVICE:-cuda} PYTHON=${PYTHON:-python3} OUT=${OUT:-$PWD/gpu-results} VERSION=${VERSION:-3.12}
PACK=${PACK:-$PWD/.gpu}; SITE=${SITE:-$PACK/site} RUNS=$OUT/runs; SCENES=$SITE/scenes
# Packages that machines with PyTorch rarely have, in versions that work with Jittor; the machine provides the rest:
OF_THE_MACHINE="cv2 PIL skimage matplotlib safetensors"
OF_THE_PACK="numpy scipy igl trimesh embreex mcubes tensorboardX pyhocon tqdm pytest hypothesis"
WHEELS="numpy==1.26.4 scipy==1.14.1 libigl==2.6.3 trimesh==5.2.0 embreex==4.4.0.post1 PyMCubes==0.1.6"
WHEELS="$WHEELS tensorboardX==2.6.5 astunparse==1.6.3"
WHEELS="$WHEELS protobuf==7.36.2 six==1.17.0 pyparsing==3.3.3 packaging==26.3 tqdm==4.70.1" # what these import
WHEELS="$WHEELS pytest==9.2.0 pluggy==1.7.0 iniconfig==2.3.1 pygments==2.21.0 hypothesis==6.170.15 sortedcontainers==2.4.0"
SOURCES="jittor==1.3.11.0 pyhocon==0.3.63" # pure Python, without wheels
# Parts of SciPy that neither the program nor scikit-image's metrics import.
UNUSED="stats signal integrate interpolate misc cluster odr fftpack datasets"
MOST_MIB=50
GRACE=${GRACE:-10} # seconds that an interrupted stage has to end: a training saves its step
child="" current="" begin=0 limit=0 # the running process group, and its stage

run() { # COMMAND...: run it in a separate process group and end all its processes afterwards
    set -m
    "$@" < /dev/null 9>&- & child=$!
    set +m
    wait "$child"
    local status=$?
    bury
    return $status
}

bury() { # interrupt the remaining processes of the group, and kill them if they do not end
    local _
    if [ -n "$child" ] && kill -INT -- "-$child" 2> /dev/null; then
        for _ in $(seq $((10 * GRACE))); do kill -0 -- "-$child" 2> /dev/null || break; sleep 0.1; done
        kill -KILL -- "-$child" 2> /dev/null
    fi
    child=""
}

stop() { # SIGNAL: end the stage and the run; keep the results so far
    trap '' INT TERM HUP PIPE
    echo "stopped by SIG$1: one moment" 2> /dev/null
    bury 2> /dev/null
    if [ -n "$current" ]; then
        ended stopped
        echo "the results so far are in $OUT" 2> /dev/null
    fi
    exit $((128 + $(kill -l "$1")))
}

ended() { # STATUS: a line of stages.csv, what a training leaves, and the report of what is known by now
    [ -z "$current" ] || echo "$current,$1,$((SECONDS - begin)),$limit" >> "$OUT/stages.csv"
    cp "$RUNS/$current/report/report.png" "$OUT/$current.png" 2> /dev/null
    cp "$RUNS/$current/report/metrics.json" "$OUT/$current.json" 2> /dev/null
    current=""
    "$PYTHON" -m benchmarks.gpu_report "$OUT" > /dev/null
}

stage() { # NAME SECONDS COMMAND...: its output goes to OUT/NAME.log, and how it ended to stages.csv
    local name=$1 status
    [[ -z "${STAGES:-}" || " $STAGES " == *" $name "* ]] || return 0
    current=$1 limit=$2 begin=$SECONDS
    shift 2
    echo "=== $name (at most $limit s)"
    run limited "$@"
    status=$?
    tail -n "${LINES_SHOWN:-12}" "$OUT/$name.log"
    ended $status
    return $status
}

limited() { # COMMAND...: takes the place of its shell
    exec timeout -s INT -k "$GRACE" "$limit" "$@" > "$OUT/$current.log" 2>&1
}

set_aside() { # what lies in OUT is of an earlier run: it is kept, and nothing of it is told as this one's
    local number=1 entry found=()
    for entry in "$OUT"/*.log "$OUT"/*.json "$OUT"/*.png "$OUT"/*.csv "$OUT/results.md" "$RUNS"; do
        [ -e "$entry" ] && found+=("$entry")
    done
    [ ${#found[@]} = 0 ] && return
    while [ -e "$OUT/earlier-$number" ]; do number=$((number + 1)); done
    mkdir "$OUT/earlier-$number" && mv "${found[@]}" "$OUT/earlier-$number/" || return
    echo "the results of an earlier run were moved to $OUT/earlier-$number"
}

pack() { # [SCENES]: in a subshell that ends at the first failure; the pack is complete or absent
    local scenes=${1:-public_data} packed=() wheels tags="" tag scene tool
    for scene in bunny lego; do
        if [ -d "$scenes/$scene" ]; then packed+=("$scenes/$scene"); continue; fi
        [ -z "${1:-}" ] || { echo "error: $scenes/$scene is missing: pack takes the folder that holds bunny/ and lego/" >&2; return 2; }
        echo "$scenes/$scene is missing and not packed; its stage will be reported as missing"
    done
    for tool in "$PYTHON" tar xz find; do
        command -v "$tool" > /dev/null || { echo "error: pack needs $tool, which is not installed: install it" >&2; return 1; }
    done
    scratch=$(mktemp -d 2> /dev/null) && mkdir -p "$scratch/wheels" "$scratch/site/scenes" || {
        echo "error: no scratch folder can be made in ${TMPDIR:-/tmp}: set TMPDIR to a folder with free space" >&2
        return 1
    }
    wheels=$scratch/wheels
    set -e
    trap 'packed $?' EXIT
    trap 'exit 130' INT
    exec 8>&2 2> "$scratch/said"
    doing="fetch the packages" remedy="pip must work on this machine"
    for tag in 2_28 2_27 2_17 2_12 2_5; do tags="$tags --platform manylinux_${tag}_x86_64"; done
    tags="$tags --platform manylinux2014_x86_64 --platform manylinux1_x86_64 --platform any"
    # shellcheck disable=SC2086 # lists of words
    "$PYTHON" -m pip download -q --no-deps --only-binary=:all: --python-version "$VERSION" --implementation cp $tags \
        -d "$wheels" $WHEELS
    # shellcheck disable=SC2086 # a list of words
    "$PYTHON" -m pip wheel -q --no-deps -w "$wheels" $SOURCES
    doing="unpack the packages and scenes" remedy="free space in ${TMPDIR:-/tmp}, or set TMPDIR"
    for wheel in "$wheels"/*.whl; do "$PYTHON" -m zipfile -e "$wheel" "$scratch/site"; done
    for data in "$scratch"/site/*.data; do # pip would move these folders up
        for part in purelib platlib; do [ -d "$data/$part" ] && cp -r "$data/$part/." "$scratch/site/"; done
        rm -rf "$data"
    done
    for part in $UNUSED; do rm -rf "$scratch/site/scipy/$part"; done
    rm -rf "$scratch"/site/{include,lib64,share,bin} "$scratch"/site/numpy/f2py
    find "$scratch/site" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
    local include; include=$("python$VERSION" -c 'import sysconfig; print(sysconfig.get_paths()["include"])' 2> /dev/null || true)
    [ -f "$include/Python.h" ] && cp -rL "$include" "$scratch/site/python-include"
    [ ${#packed[@]} = 0 ] || cp -rL "${packed[@]}" "$scratch/site/scenes/"
    rm -f "$scratch/site/scenes/bunny/source.obj"
    doing="write $PACK" remedy="free space there"
    mkdir -p "$PACK"
    made=$(mktemp -d "$PACK/new.XXXXXX")
    # In blocks, so that all cores compress.
    tar c -C "$scratch" --sort=name site | xz -T0 --block-size=64MiB --x86 --lzma2=preset=6,dict=64MiB > "$made/site.tar.xz"
    tar tJf "$made/site.tar.xz" > /dev/null
    echo "$VERSION" > "$made/python-version"
    local size; size=$(du -sm "$made" | cut -f1)
    doing="keep to $MOST_MIB MiB" remedy="it would be $size MiB: pack smaller scenes"
    [ "$size" -le "$MOST_MIB" ]
    mv -f "$made/site.tar.xz" "$made/python-version" "$PACK/"
    echo "$PACK: $size MiB"
}

packed() { # STATUS: the end of pack
    local words
    words=$(grep -v '^\[notice\]' "$scratch/said" 2> /dev/null | grep . | tail -n 1)
    case $1 in
        0) ;;
        130) echo "nothing was packed" >&8 ;;
        *) echo "error: pack could not $doing${words:+ ($words)}: $remedy; the earlier content of $PACK is unchanged" >&8 ;;
    esac
    rm -rf "$scratch" ${made:+"$made"}
    exit $(($1 != 0))
}

facts() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap,clocks.max.sm --format=csv
    nproc; free -g; df -h /tmp "$HOME"
    type -ap nvcc g++ python3 "python$VERSION-config" nsys ncu
    env | grep -E '^(CUDA|NVCC|nvcc|LD_LIBRARY_PATH|JITTOR)'
    nvcc --version; g++ --version | head -1; "$PYTHON" --version
    ls -d /usr/local/cuda*
    "$PYTHON" -c 'import sysconfig, os; p = sysconfig.get_paths()["include"]; print(p, os.path.exists(p + "/Python.h"))'
    "$PYTHON" -m pip list 2>/dev/null | grep -iE '^(numpy|scipy|opencv|torch|nvidia|cuda|pytest|scikit|matplotlib|pillow)'
    git rev-parse HEAD 2>/dev/null || true
}

unpack() { # replaces an earlier unpacked pack
    if [ -e "$SITE" ] && [ ! -e "$SITE/.of-the-pack" ]; then
        echo "error: $SITE exists and was not unpacked by this script: set SITE to a new folder" >&2
        return 2
    fi
    rm -rf "$SITE" && mkdir -p "$SITE" && : > "$SITE/.of-the-pack" || return
    local found; found=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    # Compiled packages for another Python version would hide those of the machine, so only the scenes are unpacked.
    if [ "$found" != "$VERSION" ]; then
        tar xJf "$PACK/site.tar.xz" -C "$SITE" --strip-components=1 site/scenes
        echo "error: the pack is for Python $VERSION and $PYTHON is $found: pack it with VERSION=$found, or set PYTHON" >&2
        return 2
    fi
    tar xJf "$PACK/site.tar.xz" -C "$SITE" --strip-components=1
}

packages() { # report all missing packages in one sentence; Jittor is not imported, because that would compile it
    # shellcheck disable=SC2086 # lists of words
    "$PYTHON" -c 'import importlib, importlib.util, sys
missing = [] if importlib.util.find_spec("jittor") else ["jittor"]
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(f"{name} ({error})")
words = ", ".join(missing)
sys.exit(f"error: {sys.executable} cannot import {words}: install the missing packages" if missing else 0)
' $OF_THE_MACHINE $OF_THE_PACK
}

python_config() { # replaces python-config for Jittor if the headers were packed and are not installed
    local include; include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    [ -f "$include/Python.h" ] && command -v "python$VERSION-config" > /dev/null && return
    [ -f "$include/Python.h" ] || include=$SITE/python-include
    [ -f "$include/Python.h" ] || return
    # shellcheck disable=SC2016 # $1 belongs to the written script
    printf '#!/bin/sh\ncase "$1" in --includes) echo "-I%s" ;; --extension-suffix) echo "%s" ;; esac\n' "$include" \
        "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')" > "$SITE/python-config"
    chmod +x "$SITE/python-config"
    export NEUS_PYTHON_CONFIG=$SITE/python-config
}

train() { # NAME CONF SCENE SECONDS SETTING...: train for at most this time, and evaluate the result
    local name=$1 conf=$2 scene=$3 seconds=$4 settings=() setting resolution=256 status
    shift 4
    if [ "$scene" != demo ]; then set -- "dataset.data_dir=$SCENES/$scene" "$@"; fi
    # shellcheck disable=SC2086 # a list of words
    if [ "$DEVICE" = cpu ]; then set -- "$@" $REDUCED; resolution=32; fi
    for setting in "general.base_exp_dir=$RUNS/$name" "$@"; do settings+=(--set "$setting"); done
    # In the foreground, that is, in the process group of the stage; an interrupted training saves its checkpoint.
    timeout --foreground -s INT -k "$GRACE" "$seconds" \
        "$PYTHON" exp_runner.py --conf "$conf" --device "$DEVICE" --mode train --overwrite "${settings[@]}"
    status=$?
    [ $status = 124 ] && echo "the training ended after its limit of $seconds s; its last state is evaluated"
    [ $status = 0 ] || [ $status = 124 ] || return $status
    "$PYTHON" exp_runner.py --conf "$conf" --device "$DEVICE" --mode evaluate --resolution $resolution "${settings[@]}"
}

bunny() { # NAME SECONDS: the training of the target
    train "$1" confs/fast.conf bunny "$2" dataset.test_every=8 "dataset.reference_mesh=$SCENES/bunny/gt_unit.ply"
}

for signal in INT TERM HUP PIPE; do trap "stop $signal" "$signal"; done
case "${1:-}:$#:$DEVICE" in
    pack:[12]:*) run pack "${2:-}"; exit ;;
    :0:cuda | :0:cpu) ;;
    *) echo "error: call it without arguments or as 'gpu.sh pack [SCENES]', with DEVICE=cuda or DEVICE=cpu" >&2; exit 2 ;;
esac
[ -f "$PACK/python-version" ] && VERSION=$(cat "$PACK/python-version")
{ mkdir -p "$OUT" && exec 9> "$OUT/.lock"; } 2> /dev/null || { echo "error: OUT=$OUT cannot be written to: set OUT to another folder" >&2; exit 2; }
flock -n 9 || { echo "error: another call is writing to $OUT: wait for it, or set OUT to another folder" >&2; exit 2; }
set_aside && mkdir -p "$RUNS" || { echo "error: an earlier run's results cannot be moved within $OUT: set OUT to another folder" >&2; exit 2; }
# Tests of the operations in their native form and against the reference; none simulates another machine.
TESTS="cuda_forms splats grid march packed hits patches nerf fields native_sampling splat_wander guard_update optimizer"
TESTS="$TESTS volrend sampling renderer finite"
# One per model type: a repeated run, and a resumed one.
RESUMES="tests/test_training_runs.py tests/test_nerf_runs.py tests/test_fast_neus.py tests/test_gaussians.py"
GOLDEN="tests/golden/wmask_small.npz tests/golden/womask_small.npz"
REDUCED="train.end_iter=8 train.batch_size=64 train.mesh_resolution=32 train.val_freq=8 train.val_mesh_freq=0"
REDUCED="$REDUCED train.save_freq=8 train.validate_resolution_level=8"
STEPS=(--device "$DEVICE") WIDTHS="0 16 32 64 128 256" FLAT=2000
if [ "$DEVICE" = cpu ]; then STEPS+=(--rehearse) WIDTHS="0 8" FLAT=8 TESTS=march; fi
export DEVICE PYTHON OUT GRACE OF_THE_MACHINE OF_THE_PACK SITE VERSION PACK SCENES RUNS REDUCED PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/tests
export -f facts unpack packages train bunny
stage facts 60 bash -c facts
unpacked=true
if [ -f "$PACK/site.tar.xz" ]; then stage unpack 120 bash -c unpack || unpacked=false; fi
[ $unpacked = true ] && [ -d "$SITE/jittor" ] && export PYTHONPATH=$SITE:$PYTHONPATH
stage packages 120 bash -c packages || { echo "error: packages are missing: install those listed above" >&2; exit 1; }
python_config
# shellcheck disable=SC2086 # a list of words; with nothing compiled, Jittor compiles itself here
stage parity 600 "$PYTHON" -m benchmarks.on_device "$DEVICE" tests/parity.py $GOLDEN
stage steps 300 "$PYTHON" -m benchmarks.gpu_steps "$OUT/steps.json" "${STEPS[@]}"
# Of some steps of the released size, once everything is compiled: 700 kernels are more than one step has.
if [ "$DEVICE" = cuda ] && command -v ncu > /dev/null; then
    stage kernels 120 ncu --clock-control none --metrics gpu__time_duration.sum --csv --print-units base \
        --log-file "$OUT/kernels.csv" --kill yes --launch-skip 3000 --launch-count 700 \
        "$PYTHON" -m benchmarks.gpu_steps "$OUT/kernels.json" "${STEPS[@]}" --importance 64
fi
# Not the first stage: with an empty compile cache it takes most of its limit.
stage doctor 600 "$PYTHON" exp_runner.py --mode doctor --device "$DEVICE"
# shellcheck disable=SC2046,SC2086 # a list of words
stage tests 600 "$PYTHON" -m benchmarks.on_device "$DEVICE" pytest -vv --tb=short $(printf 'tests/test_%s.py ' $TESTS)
stage demo 300 bash -c 'train demo confs/demo.conf demo 200'
stage bunny 300 bash -c 'bunny bunny 200'
stage bunny_40s 140 bash -c 'bunny bunny_40s 40' # wall-clock time, including the start
stage lego 420 bash -c 'train lego confs/fast_nerf.conf lego 300'
# shellcheck disable=SC2086 # a list of words
stage resume 400 "$PYTHON" -m benchmarks.on_device "$DEVICE" pytest -vv --tb=short $RESUMES -k 'bit_for_bit or equal_six'
stage gaussians 360 bash -c 'train gaussians confs/gaussians.conf lego 240'
stage tf32 300 "$PYTHON" -m benchmarks.gpu_steps "$OUT/tf32.json" "${STEPS[@]}" --tf32
# shellcheck disable=SC2086 # a list of words
stage parity_tf32 300 "$PYTHON" -m benchmarks.on_device "$DEVICE" --tf32 tests/parity.py $GOLDEN
stage demo_tf32 300 bash -c 'train demo_tf32 confs/demo.conf demo 200 train.tf32=true'
[ -n "${PEER:-}" ] && stage peer 300 "$PYTHON" -m benchmarks.gpu_steps "$OUT/peer.json" "${STEPS[@]}" --peer "$PEER"
# shellcheck disable=SC2086 # a list of numbers
stage sweep 300 "$PYTHON" -m benchmarks.gpu_steps "$OUT/sweep.json" "${STEPS[@]}" --importance $WIDTHS
stage flat 300 "$PYTHON" -m benchmarks.gpu_steps "$OUT/flat.json" "${STEPS[@]}" --flat $FLAT
"$PYTHON" -m benchmarks.gpu_report "$OUT"
[ "$DEVICE" = cpu ] && echo "a test without a GPU: the figures above are meaningless"
exit 0

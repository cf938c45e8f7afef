#!/usr/bin/env bash
# Measure a machine with an NVIDIA GPU and no network with one command, in the root of the checkout:
#   bash benchmarks/gpu.sh pack          on a machine with pip: create .gpu/ (at most 50 MiB, and 64 with the checkout)
#                                        with packages for Python 3.12, the networks in tiles if there is an nvcc, the
#                                        published networks of PEER, and the scenes bunny and dtu_scan65 of public_data/
#   bash benchmarks/gpu.sh pack SCENES   the same with both scenes, which must be in the folder SCENES
#   bash benchmarks/gpu.sh               on the machine with the GPU, the first call: are the networks right; their steps
#   CALL=2 bash benchmarks/gpu.sh        the second call: steps without masks, trainings, sizes, tests, Jittor's cache
# A call takes at most LIMIT seconds (270 and 400); STAGES lists some stages by name (benchmarks/gpu_run.py).
# Results: at most eight files in gpu-results/ (OUT), written after each stage; those of an earlier run are moved to a
# subfolder. Unpacked packages, trainings and logs are in gpu-work/ (WORK). OUT/cache.tar.xz, moved into .gpu/, is
# restored by the next call.
# PYTHON: the interpreter. PEER: a checkout of the published code, timed too if PYTHON or PEER_PYTHON has PyTorch.
# Ctrl-C, or a closed terminal, ends all stages and the run; the results so far are reported.
# DEVICE=cpu tests all stages without a GPU, at sizes whose results are meaningless.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
DEVICE=${DEVICE:-cuda} PYTHON=${PYTHON:-python3} OUT=${OUT:-$PWD/gpu-results} WORK=${WORK:-$PWD/gpu-work}
VERSION=${VERSION:-3.12} PACK=${PACK:-$PWD/.gpu}
SITE=$WORK/site
# Packages that machines with PyTorch rarely have, in versions that work with Jittor; the machine provides the rest:
OF_THE_MACHINE="cv2 PIL skimage matplotlib safetensors"
OF_THE_PACK="numpy scipy igl trimesh embreex mcubes tensorboardX fast_simplification pyhocon tqdm pytest hypothesis"
WHEELS="numpy==1.26.4 scipy==1.14.1 libigl==2.6.3 trimesh==5.2.0 embreex==4.4.0.post1 PyMCubes==0.1.6"
WHEELS="$WHEELS tensorboardX==2.6.5 astunparse==1.6.3 fast-simplification==0.2.0"
WHEELS="$WHEELS protobuf==7.36.2 six==1.17.0 pyparsing==3.3.3 packaging==26.3 tqdm==4.70.1" # what these import
WHEELS="$WHEELS pytest==9.2.0 pluggy==1.7.0 iniconfig==2.3.1 pygments==2.21.0 hypothesis==6.170.15 sortedcontainers==2.4.0"
SOURCES="jittor==1.3.11.0 pyhocon==0.3.63" # pure Python, without wheels
# Parts of SciPy that neither the program nor scikit-image's metrics import.
UNUSED="stats signal integrate interpolate misc cluster odr fftpack datasets"
MOST_MIB=50 MOST_CARRIED_MIB=64 # of the pack, and with the files of the checkout

pack() { # [SCENES]: in a subshell that ends at the first failure; the pack is complete or absent
    local scenes=${1:-public_data} packed=() wheels tags="" tag scene tool
    for scene in bunny dtu_scan65; do
        if [ -d "$scenes/$scene" ]; then packed+=("$scenes/$scene"); continue; fi
        [ -z "${1:-}" ] || { echo "error: $scenes/$scene is missing: pack takes the folder that holds bunny/ and dtu_scan65/" >&2; return 2; }
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
    doing="convert the photographs of dtu_scan65" remedy="$PYTHON must have cv2"
    [ ! -d "$scratch/site/scenes/dtu_scan65" ] || "$PYTHON" -c 'import cv2, pathlib, sys
for path in pathlib.Path(sys.argv[1], "image").glob("*.png"):
    assert cv2.imwrite(str(path.with_suffix(".jpg")), cv2.imread(str(path)), [cv2.IMWRITE_JPEG_QUALITY, 90])
    path.chmod(0o644), path.unlink()' "$scratch/site/scenes/dtu_scan65"
    doing="compile the networks in tiles" remedy="run benchmarks/gpu_tiles.py --build alone for the message"
    command -v nvcc > /dev/null && "$PYTHON" -m benchmarks.gpu_tiles --build "$scratch/site/tiles" > /dev/null
    doing="copy the published networks" remedy="PEER must be a checkout of the published code"
    [ -z "${PEER:-}" ] || { mkdir -p "$scratch/peer/models" && cp "$PEER"/models/{embedder,fields,renderer}.py "$scratch/peer/models"; }
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
    local tree; tree=$(git ls-files -z | du -cm --files0-from=- | tail -n 1 | cut -f1)
    doing="keep to $MOST_CARRIED_MIB MiB with the checkout" remedy="it would be $((size + tree)) MiB: pack smaller scenes"
    [ $((size + tree)) -le "$MOST_CARRIED_MIB" ]
    mv -f "$made/site.tar.xz" "$made/python-version" "$PACK/"
    rm -rf "$PACK/peer" && [ ! -d "$scratch/peer" ] || mv "$scratch/peer" "$PACK/"
    echo "$PACK: $size MiB"
}

packed() { # STATUS: the end of pack
    local words
    words=$(grep -v '^\[notice\]' "$scratch/said" 2> /dev/null | grep . | tail -n 1) || true # nothing was said
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
    type -ap nvcc g++ python3 "python$VERSION-config" nsys
    env | grep -E '^(CUDA|NVCC|nvcc|LD_LIBRARY_PATH|JITTOR)'
    nvcc --version; g++ --version | head -1; "$PYTHON" --version
    ls -d /usr/local/cuda*
    "$PYTHON" -c 'import sysconfig, os; p = sysconfig.get_paths()["include"]; print(p, os.path.exists(p + "/Python.h"))'
    "$PYTHON" -m pip list 2>/dev/null | grep -iE '^(numpy|scipy|opencv|torch|nvidia|cuda|pytest|scikit|matplotlib|pillow)'
    git rev-parse HEAD 2>/dev/null || true
}

tiles() {
    [ -d "$SITE/tiles" ] || "$PYTHON" -m benchmarks.gpu_tiles --build "$SITE/tiles" --device "$DEVICE" || return
    "$PYTHON" -m benchmarks.gpu_tiles --run "$SITE/tiles" --device "$DEVICE"
}

cache() { # without what only the compiler reads again
    tar c -C "$HOME" --exclude='*.o' --exclude='*.gch' --exclude='*.post.s' .cache/jittor | xz -T0 -1 > "$OUT/cache.tar.xz"
}

unpack() { # unless the same pack is unpacked already
    mkdir -p "$SITE" && python_config
    [ ! -f "$PACK/cache.tar.xz" ] || [ -d "$HOME/.cache/jittor" ] || tar xJf "$PACK/cache.tar.xz" -C "$HOME" || return
    [ -f "$PACK/site.tar.xz" ] || { echo "there is no pack in $PACK: the packages of $PYTHON are used"; return 0; }
    local found content=site; found=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    # Compiled packages for another Python version would hide those of the machine, so only the scenes are unpacked.
    [ "$found" = "$VERSION" ] || content=site/scenes
    if ! cmp -s "$PACK/site.tar.xz" "$WORK/unpacked-${content##*/}"; then
        rm -rf "$SITE" "$WORK"/unpacked-* && mkdir -p "$SITE" || return
        tar xJf "$PACK/site.tar.xz" -C "$SITE" --strip-components=1 $content && python_config || return
        cp "$PACK/site.tar.xz" "$WORK/unpacked-${content##*/}"
    fi
    [ "$found" = "$VERSION" ] && return
    echo "error: the pack is for Python $VERSION and $PYTHON is $found: pack it with VERSION=$found, or set PYTHON" >&2
    return 2
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
    [ -f "$include/Python.h" ] || return 0
    # shellcheck disable=SC2016 # $1 belongs to the written script
    printf '#!/bin/sh\ncase "$1" in --includes) echo "-I%s" ;; --extension-suffix) echo "%s" ;; esac\n' "$include" \
        "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')" > "$SITE/python-config"
    chmod +x "$SITE/python-config"
}

[ -f "$PACK/python-version" ] && VERSION=$(cat "$PACK/python-version")
export DEVICE PYTHON OUT WORK PACK VERSION
case "${1:-}:$#:$DEVICE" in
    pack:[12]:*) pack "${2:-}" ;;
    facts:1:* | unpack:1:* | packages:1:* | tiles:1:* | cache:1:*) "$1" ;; # stages
    :0:cuda | :0:cpu) exec "$PYTHON" -m benchmarks.gpu_run ;;
    *) echo "error: call it without arguments or as 'gpu.sh pack [SCENES]', with DEVICE=cuda or DEVICE=cpu" >&2; exit 2 ;;
esac

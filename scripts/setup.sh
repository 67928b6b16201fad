# shellcheck shell=bash disable=SC2034
# Set-up shared by run, build, test, format, lint and fuzz; sourced, never executed. Everything it does is skipped when already done,
# so that a second call takes no network and under a second.
#
# STEPLADDER_CUDA: AUTO (default: where there is a device, the toolkit that is here or NVIDIA's PyPI wheels; else CPU only),
# ON (the same, device or not, and an error where neither can be had), OFF (CPU only), wheels (the wheels, device or not).
# STEPLADDER_WERROR: ON makes the compilers' warnings errors, as CI does; by default a newer compiler's are no obstacle.
# STEPLADDER_ARCHITECTURES: device (default: CUDA code for the devices here alone, where there are any), or all.

set -euo pipefail
shopt -s inherit_errexit nullglob
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
JOBS=$(nproc)
cd "$ROOT"
mkdir -p build

# note TEXT...: a line of its own, even while another one is changing.
note() {
  [[ ! -t 2 ]] || printf '\r\e[K' >&2
  printf 'stepladder: %s\n' "$*" >&2
}
die() {
  note "error: $*"
  exit 1
}

# ---- Debian packages ----------------------------------------------------------------------------------------------

# package_present PACKAGE: whether what the project needs of it is here, whoever installed it.
package_present() {
  case $1 in
    build-essential) command -v c++ && command -v make ;;
    ca-certificates) [[ -s /etc/ssl/certs/ca-certificates.crt || -s /etc/pki/tls/certs/ca-bundle.crt ]] ;;
    iproute2) command -v ip ;;
    libclang-rt-dev) clang++ -fsanitize=address -x c++ - -o /dev/null <<<'int main() {}' ;;
    libboost-dev) [[ -e /usr/include/boost/math/distributions/students_t.hpp ]] ;;
    libbenchmark-dev) pkg-config --exists 'benchmark >= 1.7' ;;
    libcli11-dev) pkg-config --exists 'CLI11 >= 2.1' ;;
    libgtest-dev) pkg-config --exists 'gtest >= 1.12' ;;
    libopenmpi-dev) mpicxx --showme:version | grep -q 'Open MPI' ;;
    openmpi-bin) mpirun --version | grep -q 'Open MPI' ;;
    libopenblas-dev) pkg-config --exists openblas ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 ;;
    ninja-build) command -v ninja ;;
    nlohmann-json3-dev) pkg-config --exists 'nlohmann_json >= 3.11' ;;
    python3-venv) [[ -x .venv/bin/python ]] || "$(find_python)" -c 'import ensurepip, venv' ;;
    *) command -v "$1" ;;
  esac >/dev/null 2>&1
}

# apt_get ARGUMENT...: apt-get as root, its output in build/apt.log; 1 where there is no apt-get, no root or no network.
apt_get() {
  local as_root=()
  if ((EUID != 0)); then
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(-n)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qy "$@" >build/apt.log 2>&1 </dev/null
}

# Refreshes apt's lists, once.
apt_update() {
  [[ -n ${apt_is_fresh:-} ]] || apt_get update && apt_is_fresh=yes
}

# require_packages PACKAGE...: installs those that are missing; exits naming them if it can't.
require_packages() {
  local package missing=()
  for package in "$@"; do
    package_present "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  note "installing ${#missing[@]} Debian packages: ${missing[*]}"
  { apt_update && apt_get install --no-install-recommends "${missing[@]}"; } ||
    die "missing and could not be installed (build/apt.log); as root: apt-get install ${missing[*]}"
  for package in "${missing[@]}"; do
    package_present "$package" || die "$package is installed, but too old or not on PATH or pkg-config's path"
  done
}

# want_packages WHAT PACKAGE...: the same, but goes on without WHAT if it can't.
want_packages() {
  local what=$1
  shift
  (require_packages "$@") || note "warning: going on without $what"
}

# ---- Python environments -----------------------------------------------------------------------------------------

# Prints a Python of 3.11 or newer, the virtual environment's where there is one.
find_python() {
  local python
  for python in .venv/bin/python python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$python"
      return
    fi
  done
  return 1
}

# python_environment FOLDER REQUIREMENTS: a virtual environment with exactly these packages; 1 if it can't be had.
python_environment() {
  local folder=$1 requirements=$2 stamp python
  # Packages are of a Python's version, which may have become another.
  stamp() { "$1" --version && sha256sum <"$requirements"; }
  if [[ -f $folder/stamp && $(<"$folder/stamp") == "$(stamp "$folder/bin/python" 2>&1)" ]]; then
    return
  fi
  python=$("$(find_python)" -c 'import sys; print(sys._base_executable)') || return
  note "installing Python packages into $folder ($requirements)"
  rm -rf "$folder.old" # a link itself, not what it leads to
  [[ ! -e $folder ]] || mv "$folder" "$folder.old"
  # Python compiles what is imported; not all that is there.
  if "$python" -m venv "$folder" >build/pip.log 2>&1 &&
    "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile --retries 1 --require-hashes \
      --no-deps --only-binary :all: --requirement "$requirements" >>build/pip.log 2>&1; then
    stamp "$folder/bin/python" >"$folder/stamp"
    rm -rf "$folder.old"
  else
    rm -rf "$folder"
    [[ ! -e $folder.old ]] || mv "$folder.old" "$folder"
    return 1
  fi
}

# ---- CUDA ----------------------------------------------------------------------------------------------------------

# Prints the nvcc of a toolkit that is already here, 12.0 or newer.
find_nvcc() {
  local nvcc release
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" \
    /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc; do
    [[ -x $nvcc ]] || continue
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    if ((${release:-0} >= 12)); then
      printf '%s\n' "$nvcc"
      return
    fi
    note "$nvcc is older than CUDA 12.0: not used"
  done
  return 1
}

nvidia_device_present() {
  [[ -e /dev/nvidia0 ]] || nvidia-smi --list-gpus 2>/dev/null | grep -q GPU
}

# Prints what to compile CUDA code for, "90a-real;80-real"; nothing for all that the project names.
device_architectures() {
  [[ ${STEPLADDER_ARCHITECTURES:-device} == device ]] || return 0
  # Its errors come on stdout too.
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | grep -xE '[0-9]+' | sort -u |
    sed 's/^90$/90a/; s/$/-real/' | paste -sd';' || true
}

# Prints the nvcc of NVIDIA's PyPI wheels, laid out as find_package(CUDAToolkit) looks for it.
cuda_wheels() {
  local toolkits library
  python_environment .venv-cuda scripts/requirements-cuda.txt || return
  toolkits=(.venv-cuda/lib/python3*/site-packages/nvidia/cu13)
  ((${#toolkits[@]})) || return
  # The wheels hold lib/libX.so.13; linkers look for lib64/libX.so.
  ln -sfn lib "${toolkits[0]}/lib64"
  for library in "${toolkits[0]}"/lib/lib*.so.[0-9]*; do
    ln -sfn "${library##*/}" "${library%%.so.*}.so"
  done
  printf '%s\n' "$ROOT/${toolkits[0]}/bin/nvcc"
}

# Prints the folder of cuDNN's header-only C++ interface.
cudnn_frontend() {
  local headers
  python_environment .venv-cudnn scripts/requirements-cudnn.txt || return
  headers=(.venv-cudnn/lib/python3*/site-packages/include)
  [[ -f ${headers[0]:-}/cudnn_frontend.h ]] || return
  printf '%s\n' "$ROOT/${headers[0]}"
}

# Sets PRESET to cuda or cpu, and CUDACXX, CUDAToolkit_ROOT and CUDNN_FRONTEND_DIR for CMake.
choose_backend() {
  local mode=${STEPLADDER_CUDA:-AUTO} nvcc='' device=false
  PRESET=cpu
  [[ $mode =~ ^(AUTO|ON|OFF|wheels)$ ]] || die "STEPLADDER_CUDA=$mode: expected AUTO, ON, OFF or wheels"
  if [[ $mode == OFF ]]; then
    note "STEPLADDER_CUDA=OFF: CPU only"
    return
  fi

  if nvidia_device_present; then device=true; fi
  if [[ $mode == AUTO && $device == false ]]; then
    note "CPU only: no NVIDIA device"
    return
  fi
  if [[ $mode != wheels ]]; then nvcc=$(find_nvcc) || nvcc=''; fi
  if [[ -z $nvcc ]]; then nvcc=$(cuda_wheels) || nvcc=''; fi

  if [[ -n $nvcc ]]; then
    PRESET=cuda
    ARCHITECTURES=$(device_architectures)
    export CUDACXX=$nvcc CUDAToolkit_ROOT=${nvcc%/bin/nvcc}
    if [[ -z ${CUDNN_FRONTEND_DIR:-} ]]; then
      CUDNN_FRONTEND_DIR=$(cudnn_frontend) ||
        note "warning: nvidia-cudnn-frontend could not be installed (build/pip.log): attention runs on our own kernels"
      export CUDNN_FRONTEND_DIR
    fi
  elif [[ $mode != AUTO ]]; then
    die "STEPLADDER_CUDA=$mode: no CUDA toolkit, and its PyPI wheels could not be installed (build/pip.log)"
  else
    note "CPU only: an NVIDIA device, but no CUDA toolkit, and its PyPI wheels could not be installed (build/pip.log)"
  fi
}

# ---- all together ------------------------------------------------------------------------------------------------

# With another installation's PYTHONHOME no Python starts, and what needs one would say that it is missing.
require_python_home() {
  [[ -z ${PYTHONHOME:-} ]] || python3 -c '' 2>/dev/null ||
    die "PYTHONHOME=$PYTHONHOME keeps python3 from starting: unset PYTHONHOME"
}

BUILD_PACKAGES=(build-essential cmake ninja-build pkg-config python3 libboost-dev libcli11-dev libopenblas-dev libpcre2-dev
  nlohmann-json3-dev)

# setup run|tests: the Debian packages that a build needs, that of the tests too or not. Sets PRESET.
setup() {
  local more=()
  require_python_home
  [[ $1 != tests ]] || more=(libbenchmark-dev libgtest-dev)
  require_packages "${BUILD_PACKAGES[@]}" ca-certificates git python3-venv "${more[@]}"
  [[ $1 != tests ]] || want_packages "several ranks on the CPU" libopenmpi-dev openmpi-bin
  [[ $1 != tests ]] || want_packages "tests of two machines" iproute2
  choose_backend
}

# What a run and its report need beside the build: Python packages and data.
fetch() {
  local python=.venv/bin/python
  if ! python_environment .venv scripts/requirements.txt; then
    note "warning: Python packages could not be installed (build/pip.log): no page, no charts"
    python=$(find_python) || return
  fi
  [[ -f data/austen.txt ]] || apt_update || true # the corpus is in a Debian package
  "$python" scripts/prepare_data.py >build/data.log || note "warning: no corpus in data/, going on without"
}

# build PRESET TARGET...: configures build/PRESET and builds these targets.
build() {
  local preset=$1 log=build/configure.log
  local options=("-DCMAKE_COMPILE_WARNING_AS_ERROR=${STEPLADDER_WERROR:-OFF}")
  shift
  [[ $preset != cuda ]] || options+=("-DCMAKE_CUDA_ARCHITECTURES=${ARCHITECTURES:-}")
  note "configuring build/$preset"
  cmake --preset "$preset" --log-level=WARNING "${options[@]}" >"$log" 2>&1 || { cat "$log" >&2 && exit 1; }
  sed -n '/^CMake Warning/,/^$/p' "$log" >&2
  NINJA_STATUS='@%f/%t@ ' cmake --build "build/$preset" --parallel "$JOBS" --target "$@" 2>&1 | show_progress
}

# prepare TARGET...: all that comes before a measurement: set-up, data, and these targets for the best device here.
prepare() {
  setup run
  set -m             # in a group of its own, to end with this script
  fetch </dev/null & # while the compilers work
  fetching=$!
  set +m
  trap 'kill -- "-$fetching" 2>/dev/null || true' EXIT
  build "$PRESET" "$@"
  wait "$fetching" || true # which has warned
  trap - EXIT
}

# Of ninja's output, how far it is: on a terminal in a line that changes, in a log a line each tenth. The rest as it is.
show_progress() {
  local line left='' tenth=0
  while IFS= read -r line; do
    if [[ ! $line =~ ^@([0-9]+)/([0-9]+)@\  ]]; then
      printf '%s%s\n' "$left" "$line" >&2
      left=''
    elif [[ -t 2 ]]; then
      printf '\r\e[Kstepladder: building %d/%d' "${BASH_REMATCH[@]:1:2}" >&2
      left=$'\n'
    elif ((BASH_REMATCH[1] * 10 / BASH_REMATCH[2] > tenth)); then
      tenth=$((BASH_REMATCH[1] * 10 / BASH_REMATCH[2]))
      note "building ${BASH_REMATCH[1]}/${BASH_REMATCH[2]}"
    fi
  done
  printf '%s' "$left" >&2
}

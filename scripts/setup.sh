# shellcheck shell=bash disable=SC2034
# Set-up shared by run, build, test, format, lint and fuzz; sourced, never executed. Everything it does is skipped when already done,
# so that a second call takes no network and under a second.
#
# STEPLADDER_CUDA: AUTO (default: where there is a device, the toolkit that is here or NVIDIA's PyPI wheels; else CPU only),
# ON (the same, device or not, and an error where neither can be had), OFF (CPU only), wheels (the wheels, device or not).
# STEPLADDER_WERROR: ON makes the compilers' warnings errors, as CI does; by default a newer compiler's are no obstacle.
# STEPLADDER_ARCHITECTURES: device (default: CUDA code for the devices here alone, where there are any), all, or CMake's list.
# CXX, CUDACXX, CUDAHOSTCXX, CMAKE_PREFIX_PATH, PKG_CONFIG_PATH: heeded here as by CMake.

set -euo pipefail
shopt -s inherit_errexit nullglob
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
JOBS=$(nproc)
cd "$ROOT"
mkdir -p build

# note TEXT...: prints a line of its own, even while a line of progress is changing.
note() {
  [[ ! -t 2 ]] || printf '\r\e[K' >&2
  printf 'stepladder: %s\n' "$*" >&2
}
die() {
  note "error: $*"
  exit 1
}

# ---- packages -----------------------------------------------------------------------------------------------------

# The oldest version of a package that will do, where it matters.
declare -A OLDEST=([build-essential]=11 [cmake]=3.22 [libbenchmark-dev]=1.6 [libcli11-dev]=2.1 [libgtest-dev]=1.11
  [nlohmann-json3-dev]=3.10.5)
# The header of a package that CMake looks for, in CMAKE_PREFIX_PATH's prefixes first.
declare -A HEADER=([libbenchmark-dev]=benchmark/benchmark.h [libboost-dev]=boost/math/distributions/students_t.hpp
  [libcli11-dev]=CLI/CLI.hpp [libgtest-dev]=gtest/gtest.h [nlohmann-json3-dev]=nlohmann/json.hpp)
SYSTEM_PREFIXES=(/usr/local /usr)
ON_PYPI=' cmake ninja-build nlohmann-json3-dev '

# in_prefix HEADER PREFIX...: whether one of the prefixes has the header.
in_prefix() {
  local prefix
  for prefix in "${@:2}"; do
    [[ ! -e $prefix/include/$1 ]] || return 0
  done
  return 1
}

# found_version PACKAGE: prints the version that is here, whoever installed it; returns 1 if it can't be told.
found_version() {
  case $1 in
    build-essential) "${CXX:-c++}" -dumpfullversion -dumpversion ;;
    cmake) cmake --version | sed -n 's/^cmake version //p' ;;
    libbenchmark-dev) pkg-config --modversion benchmark ;;
    libcli11-dev) pkg-config --modversion CLI11 ;;
    libgtest-dev) pkg-config --modversion gtest ;;
    nlohmann-json3-dev) pkg-config --modversion nlohmann_json ;;
    *) return 1 ;;
  esac 2>/dev/null
}

# at_least VERSION FOUND: whether FOUND is VERSION or newer.
at_least() {
  [[ $(printf '%s\n' "$@" | sort --version-sort | head -n 1) == "$1" ]]
}

# package_present PACKAGE: whether what the project needs of the package is here, whoever installed it.
package_present() {
  local header=${HEADER[$1]:-} prefixes=() version
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  if [[ $1 == libboost-dev ]]; then prefixes+=("${Boost_ROOT:-}" "${BOOST_ROOT:-}"); fi
  if [[ $header ]] && in_prefix "$header" "${prefixes[@]}"; then return; fi
  if version=$(found_version "$1"); then
    at_least "${OLDEST[$1]}" "$version"
    return
  fi
  if [[ $header ]]; then
    in_prefix "$header" "${SYSTEM_PREFIXES[@]}"
    return
  fi
  case $1 in
    build-essential) return 1 ;;
    chromium-headless-shell) command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome ;;
    ca-certificates) [[ -s /etc/ssl/certs/ca-certificates.crt || -s /etc/pki/tls/certs/ca-bundle.crt ]] ;;
    iproute2) command -v ip ;;
    libclang-rt-dev) clang++ -fsanitize=address -x c++ - -o /dev/null <<<'int main() {}' ;;
    libopenmpi-dev) mpicxx --showme:version | grep -q 'Open MPI' ;;
    openmpi-bin) mpirun --version | grep -q 'Open MPI' ;;
    libopenblas-dev) pkg-config --exists openblas ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 ;;
    ninja-build) command -v ninja ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    python3-venv) [[ -x .venv/bin/python ]] || "$(find_python)" -c 'import ensurepip, venv' ;;
    *) command -v "$1" ;;
  esac >/dev/null 2>&1
}

# missing PACKAGE...: prints the packages that are not here, or too old.
missing() {
  local package
  for package in "$@"; do
    package_present "$package" || printf '%s\n' "$package"
  done
}

# Prints why packages can't be installed here; 1 where installing can be tried.
why_not_apt() {
  if ! command -v apt-get >/dev/null; then
    echo 'there is no apt-get here'
  elif (($(id -u) != 0)) && ! command -v sudo >/dev/null; then
    echo 'this user is not root, and there is no sudo here'
  else
    return 1
  fi
}

# apt_get ARGUMENT...: apt-get as root, its output in build/apt.log; 1 where there is no apt-get, no root or no network.
apt_get() {
  local as_root=()
  if (($(id -u) != 0)); then
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(-n)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qy "$@" >build/apt.log 2>&1 </dev/null
}

# Refreshes apt's lists, once.
apt_update() {
  [[ -n ${apt_is_fresh:-} ]] || apt_get update && apt_is_fresh=yes
}

# Tools of a build from PyPI, in .venv-build: cmake, ninja and nlohmann_json. For systems that have none, or old ones.
use_build_environment() {
  local headers=(.venv-build/lib/python3*/site-packages/nlohmann_json)
  [[ -f .venv-build/stamp && ":$PATH:" != *":$ROOT/.venv-build/tools:"* ]] || return 0
  export PATH=$ROOT/.venv-build/tools:$PATH
  export CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:+$CMAKE_PREFIX_PATH:}$ROOT/${headers[0]}
}
make_build_environment() {
  python_environment .venv-build scripts/requirements-build.txt || return 0
  mkdir -p .venv-build/tools # a folder for PATH without the environment's Python
  ln -sfn ../bin/{cmake,ctest,ninja} .venv-build/tools
  use_build_environment
}

# install_packages PACKAGE...: installs the packages that are missing, as far as possible; tries each once.
tried=' ' why_missing=''
install_packages() {
  local package wanted=()
  for package in $(missing "$@"); do
    [[ $tried == *" $package "* ]] || wanted+=("$package")
  done
  ((${#wanted[@]})) || return 0
  tried+="${wanted[*]} "
  if ! why_missing=$(why_not_apt); then
    note "installing ${#wanted[@]} packages: ${wanted[*]}"
    { apt_update && apt_get install --no-install-recommends "${wanted[@]}"; } || why_missing='apt-get failed (build/apt.log)'
  fi
  for package in $(missing "${wanted[@]}"); do
    if [[ $ON_PYPI == *" $package "* ]]; then make_build_environment && break; fi
  done
}

# require_packages PACKAGE...: installs the packages that are missing; exits naming them if it can't.
require_packages() {
  local package packages described=() version
  install_packages "$@"
  packages=$(missing "$@" | paste -sd' ')
  [[ $packages ]] || return 0
  for package in $packages; do
    if version=$(found_version "$package"); then package+=" (here is $version, the oldest that will do is ${OLDEST[$package]})"; fi
    described+=("$package")
  done
  if command -v apt-get >/dev/null; then packages="as root: apt-get install $packages; or "; else packages=''; fi
  printf -v described '%s, ' "${described[@]}"
  die "missing: ${described%, }; ${why_missing:-this system has no newer}; ${packages}from a prefix of your own: docs/building.md"
}

# want_packages WHAT PACKAGE...: installs the packages that are missing; goes on without WHAT if it can't.
want_packages() {
  local what=$1
  shift
  install_packages "$@"
  [[ -z $(missing "$@") ]] || note "warning: going on without $what: missing $(missing "$@" | paste -sd' ')${why_missing:+; $why_missing}"
}

# ---- Python environments -----------------------------------------------------------------------------------------

# Prints a Python of 3.10 or newer, the virtual environment's where there is one.
find_python() {
  local python
  for python in .venv/bin/python python3 python3.1{3,2,1,0} /usr/bin/python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s\n' "$python"
      return
    fi
  done
  return 1
}

# python_environment FOLDER REQUIREMENTS: a virtual environment with exactly these packages; 1 if it can't be had.
python_environment() {
  local folder=$1 requirements=$2 stamp python
  # Packages are installed for a version of Python, which may have changed since.
  stamp() { "$1" --version && sha256sum <"$requirements"; }
  if [[ -f $folder/stamp && $(<"$folder/stamp") == "$(stamp "$folder/bin/python" 2>&1)" ]]; then
    return
  fi
  python=$(find_python) && python=$("$python" -c 'import sys; print(sys._base_executable)') || return
  note "installing Python packages into $folder ($requirements)"
  rm -rf "$folder.old" # a link itself, not its target
  [[ ! -e $folder ]] || mv "$folder" "$folder.old"
  # --no-compile: Python compiles a module when it is first imported.
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

CUDA_TOOLKITS=(/usr/local/cuda /usr/local/cuda-*)
OLDEST_SM=75 # Turing
# The oldest driver that runs programs of CUDA 12, and of 13.
declare -A OLDEST_DRIVER=([12]=525 [13]=580)

nvidia_device_present() {
  [[ -e /dev/nvidia0 ]] || nvidia-smi --list-gpus 2>/dev/null | grep -q GPU
}

# ask_driver FIELD...: nvidia-smi's lines, one a device. (Its errors come on stdout too.)
ask_driver() {
  local IFS=,
  nvidia-smi --query-gpu="$*" --format=csv,noheader 2>/dev/null || true
}

# Sets DRIVER to the driver's version, "550.54.15", or nothing, and CAPABILITIES to those of the devices that can be
# used, "90"; says which can't.
look_at_devices() {
  local index name capability
  DRIVER=$(ask_driver driver_version | sed -n '/^[0-9][0-9.]*$/{p;q}')
  CAPABILITIES=() TOO_OLD=()
  while IFS=, read -r index name capability; do
    capability=${capability//[ .]/}
    if [[ ! $capability =~ ^[0-9]+$ ]]; then continue; fi
    if ((capability >= OLDEST_SM)); then
      CAPABILITIES+=("$capability")
    else
      TOO_OLD+=("device $index,$name, is sm_$capability")
      note "${TOO_OLD[-1]}: left out, sm_$OLDEST_SM (Turing, as a T4) is the oldest that can be used"
    fi
  done < <(ask_driver index name compute_cap)
}

# driver_runs MAJOR: whether the driver here runs programs of CUDA MAJOR; true where there is no driver.
driver_runs() {
  [[ -z ${DRIVER:-} ]] || ((${DRIVER%%.*} >= ${OLDEST_DRIVER[$1]:-0}))
}

# Prints the nvcc of a toolkit that is already here, 12.0 or newer, and not too new for the driver.
find_nvcc() {
  local nvcc release
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-/nowhere}/bin/nvcc" "${CUDA_TOOLKITS[@]/%//bin/nvcc}"; do
    [[ -x $nvcc ]] || continue
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    if [[ ! $release ]] || ! at_least 12.0 "$release"; then
      note "$nvcc is of CUDA ${release:-?}, the oldest that will do is 12.0: not used"
    elif ! driver_runs "${release%%.*}"; then
      note "$nvcc is of CUDA $release, which needs a driver of ${OLDEST_DRIVER[${release%%.*}]} or newer, and this is $DRIVER: not used"
    else
      printf '%s\n' "$nvcc"
      return
    fi
  done
  return 1
}

# room FOLDER MB: whether MB megabytes are free on the folder's disk.
room() {
  (($(df --output=avail --block-size=1M "$1" | tail -n 1) >= $2))
}

# Sets NVCC to the nvcc of NVIDIA's PyPI wheels, laid out as find_package(CUDAToolkit) looks for them; 1 with WHY_NOT if it can't.
cuda_wheels() {
  local toolkits library folder
  if ! driver_runs 13; then
    WHY_NOT="no CUDA 12 toolkit is here, the driver is $DRIVER, and NVIDIA's wheels hold a compiler only from CUDA 13 on, which needs \
a driver of ${OLDEST_DRIVER[13]}: install a toolkit of 12.4 to 12.9 (developer.nvidia.com/cuda-toolkit-archive), or a newer driver"
    return 1
  fi
  for folder in . "${TMPDIR:-/tmp}"; do
    if [[ ! -f .venv-cuda/stamp ]] && ! room "$folder" 1700; then
      WHY_NOT="no CUDA toolkit is here, and NVIDIA's wheels need 1.7 GB in $(cd "$folder" && pwd), where less is free: make room there, \
or install a CUDA toolkit"
      return 1
    fi
  done
  WHY_NOT='no CUDA toolkit is here, and its PyPI wheels could not be installed (build/pip.log): install a CUDA toolkit'
  python_environment .venv-cuda scripts/requirements-cuda.txt || return
  toolkits=(.venv-cuda/lib/python3*/site-packages/nvidia/cu13)
  ((${#toolkits[@]})) || return
  # The wheels hold lib/libX.so.13; linkers look for lib64/libX.so.
  ln -sfn lib "${toolkits[0]}/lib64"
  for library in "${toolkits[0]}"/lib/lib*.so.[0-9]*; do
    ln -sfn "${library##*/}" "${library%%.so.*}.so"
  done
  NVCC=$ROOT/${toolkits[0]}/bin/nvcc
}

# Exports CUDAHOSTCXX where nvcc refuses the C++ compiler that it would take; 1 with WHY_NOT where it refuses all.
choose_host_compiler() {
  local compiler refusal
  [[ -z ${CUDAHOSTCXX:-} ]] || return 0
  for compiler in "${CXX:-}" '' g++-1{4,3,2,1}; do
    if "$NVCC" ${compiler:+-ccbin "$compiler"} -x cu -E -o /dev/null /dev/null >build/nvcc.log 2>&1; then
      if [[ $compiler ]]; then export CUDAHOSTCXX=$compiler; fi
      return
    fi
    refusal=${refusal:-$(sed -n 's/.*#error *-* *//p' build/nvcc.log | head -n 1)}
  done
  WHY_NOT="$NVCC refuses the C++ compilers here (${refusal:-build/nvcc.log}): install an older g++ beside them, or set CUDAHOSTCXX"
  return 1
}

# Sets ARCHITECTURES to what NVCC is to compile for, "90a-real;80-real"; nothing for all that the project names.
choose_architectures() {
  local known=() capability best each all=()
  ARCHITECTURES=''
  case ${STEPLADDER_ARCHITECTURES:-device} in
    all) return ;;
    device) ;;
    *)
      ARCHITECTURES=$STEPLADDER_ARCHITECTURES
      return
      ;;
  esac
  mapfile -t known < <("$NVCC" --list-gpu-arch | sed -n 's/^compute_\([0-9]*\)$/\1/p' | sort -n)
  for capability in "${CAPABILITIES[@]}"; do
    best=$capability
    for each in "${known[@]}"; do
      if ((each <= capability)); then best=$each; fi
    done
    if ((best == capability)); then
      all+=("${capability/#90/90a}-real")
    else
      note "$NVCC knows no sm_$capability: the driver compiles for it, from PTX of compute_$best; a newer toolkit would do better"
      all+=("$best-virtual")
    fi
  done
  ARCHITECTURES=$(printf '%s\n' "${all[@]}" | sort -u | paste -sd';')
}

# Prints the folder of cuDNN's header-only C++ interface.
cudnn_frontend() {
  local headers
  python_environment .venv-cudnn scripts/requirements-cudnn.txt || return
  headers=(.venv-cudnn/lib/python3*/site-packages/include)
  [[ -f ${headers[0]:-}/cudnn_frontend.h ]] || return
  printf '%s\n' "$ROOT/${headers[0]}"
}

# Sets NVCC and ARCHITECTURES; 1 with WHY_NOT where CUDA can't be had.
find_cuda() {
  if ! driver_runs 12; then
    WHY_NOT="the driver is $DRIVER, and CUDA 12 needs ${OLDEST_DRIVER[12]} or newer: install a newer driver"
    return 1
  fi
  if ((${#TOO_OLD[@]} && ! ${#CAPABILITIES[@]})); then
    WHY_NOT="no device here is of sm_$OLDEST_SM or newer"
    return 1
  fi
  NVCC=''
  if [[ $1 != wheels ]]; then NVCC=$(find_nvcc) || NVCC=''; fi
  [[ $NVCC ]] || cuda_wheels || return
  choose_host_compiler || return
  choose_architectures
}

# Sets PRESET to cuda or cpu, and CUDACXX, CUDAToolkit_ROOT and CUDNN_FRONTEND_DIR for CMake.
choose_backend() {
  local mode=${STEPLADDER_CUDA:-AUTO}
  PRESET=cpu
  [[ $mode =~ ^(AUTO|ON|OFF|wheels)$ ]] || die "STEPLADDER_CUDA=$mode: expected AUTO, ON, OFF or wheels"
  [[ ${STEPLADDER_ARCHITECTURES:-device} =~ ^(all|device|[0-9]+[af]?(-real|-virtual)?(;[0-9]+[af]?(-real|-virtual)?)*)$ ]] ||
    die "STEPLADDER_ARCHITECTURES=$STEPLADDER_ARCHITECTURES: expected device, all, or CMake's list, such as 75-real;80-virtual"
  if [[ $mode == OFF ]]; then
    note "STEPLADDER_CUDA=OFF: CPU only"
    return
  fi
  if [[ $mode == AUTO ]] && ! nvidia_device_present; then
    note "CPU only: no NVIDIA device"
    return
  fi
  look_at_devices
  if ! find_cuda "$mode"; then
    [[ $mode == AUTO ]] || die "STEPLADDER_CUDA=$mode: $WHY_NOT"
    note "CPU only: $WHY_NOT"
    return
  fi
  PRESET=cuda
  export CUDACXX=$NVCC CUDAToolkit_ROOT=${NVCC%/bin/nvcc}
  if [[ -z ${CUDNN_FRONTEND_DIR:-} ]]; then
    CUDNN_FRONTEND_DIR=$(cudnn_frontend) ||
      note "warning: nvidia-cudnn-frontend could not be installed (build/pip.log): attention runs on our own kernels"
    export CUDNN_FRONTEND_DIR
  fi
}

# ---- all together ------------------------------------------------------------------------------------------------

# With another installation's PYTHONHOME no Python starts, and later errors would call Python missing.
require_python_home() {
  [[ -z ${PYTHONHOME:-} ]] || python3 -c '' 2>/dev/null ||
    die "PYTHONHOME=$PYTHONHOME keeps python3 from starting: unset PYTHONHOME"
}

use_build_environment
BUILD_PACKAGES=(build-essential cmake ninja-build pkg-config python3 libboost-dev libcli11-dev libopenblas-dev libpcre2-dev
  nlohmann-json3-dev zlib1g-dev)

# setup run|tests: installs the packages that a build needs, with `tests` those of the tests too. Sets PRESET.
setup() {
  local needed=("${BUILD_PACKAGES[@]}") wanted=(ca-certificates git python3-venv)
  require_python_home
  if [[ $1 == tests ]]; then needed+=(libgtest-dev) wanted+=(libbenchmark-dev); fi
  install_packages "${needed[@]}" "${wanted[@]}" # all by one call
  require_packages "${needed[@]}"
  want_packages "downloads" ca-certificates
  want_packages "the ablations and the commit's name" git
  want_packages "the page, charts and wheels, which need Python 3.10 and venv" python3-venv
  [[ $1 != tests ]] || want_packages "ops_benchmark" libbenchmark-dev
  [[ $1 != tests ]] || want_packages "several ranks on the CPU" libopenmpi-dev openmpi-bin
  [[ $1 != tests ]] || want_packages "tests of two machines" iproute2
  [[ $1 != tests ]] || want_packages "tests of the page in a browser" chromium-headless-shell
  choose_backend
}

# Fetches what a run and its report need beside the build: Python packages and data.
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

# prepare TARGET...: does all that comes before a measurement: set-up, data, and these targets for the best device here.
prepare() {
  setup run
  set -m             # puts fetch into a process group of its own, to end with this script
  fetch </dev/null & # while the compilers work
  fetching=$!
  set +m
  trap 'kill -- "-$fetching" 2>/dev/null || true' EXIT
  build "$PRESET" "$@"
  wait "$fetching" || true # fetch has warned
  trap - EXIT
}

# Shows ninja's progress: on a terminal in a line that changes, in a log by a line each tenth. Prints other output as it is.
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

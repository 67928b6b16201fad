"""scripts/setup.sh on made-up machines: what it installs, what it refuses and with which advice, and the architectures
that it compiles CUDA code for."""

import json
import re
import shutil
import subprocess
import unittest
from pathlib import Path
from temporary import temp_folder

SOURCE = Path(__file__).resolve().parent.parent
TOOLS = ("bash cat cut df dirname env grep head ln mkdir mv nproc paste rm sed sha256sum sort tail touch tr true").split()
LISTED = {"12.4": "50 52 60 61 70 75 80 86 87 89 90", "13.0": "75 80 86 87 88 89 90 100 103 110 120 121"}


class Machine(unittest.TestCase):
    """A folder with setup.sh, and a PATH with only core utilities and the test's programs."""

    def setUp(self) -> None:
        self.root = temp_folder(self)
        shutil.copytree(SOURCE / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__", "peers"))
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.program("id", "echo 0")
        self.program("c++", "echo 11.4.0")
        self.program("cmake", "echo cmake version 3.22.1")
        for name in ("git", "ninja", "python3"):
            self.program(name)
        self.header("boost/math/distributions/students_t.hpp")
        self.known(nlohmann_json="3.10.5", CLI11="2.1.2", gtest="1.11.0", benchmark="1.6.1")

    def program(self, name: str, text: str = "") -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        path.chmod(0o755)

    def header(self, name: str) -> None:
        path = self.root / "prefix/include" / name
        path.parent.mkdir(parents=True)
        path.touch()

    def known(self, **versions: str) -> None:
        """Writes a pkg-config that knows these versions, and OpenBLAS and PCRE2."""
        cases = "".join(f"{name}) echo {version} ;; " for name, version in versions.items())
        self.program("pkg-config", f'case "$*" in --exists*) exit 0 ;; esac; case $2 in {cases}*) exit 1 ;; esac')

    def apt_get(self, *made: str) -> None:
        """Writes an apt-get that notes its arguments and makes these programs."""
        copies = "\n".join(f"cp {self.bin}/true {self.bin}/{name}" for name in made)
        self.program("apt-get", f'echo "$*" >>{self.root}/apt\n[[ $* != *install* ]] || {{ {copies or "true"}\n}}')
        (self.bin / "cp").symlink_to(shutil.which("cp"))

    def asked_apt(self) -> str:
        return (self.root / "apt").read_text() if (self.root / "apt").exists() else ""

    def bash(self, commands: str, **environment: str) -> subprocess.CompletedProcess:
        # pip must not run: its requested packages are noted instead.
        begin = ("source scripts/setup.sh; CUDA_TOOLKITS=() SYSTEM_PREFIXES=(); cudnn_frontend() { echo none; }; "
                 "python_environment() { echo \"$2\" >>pip; mkdir -p .venv-cuda/lib/python3.1/site-packages/nvidia/cu13/lib; "
                 "mkdir -p $1; touch $1/stamp; }; ")
        return subprocess.run([shutil.which("bash"), "-c", begin + commands], cwd=self.root, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60,
                              env={"PATH": str(self.bin), "TMPDIR": str(self.root), "CMAKE_PREFIX_PATH": str(self.root / "prefix"),
                                   **environment})

    def asked_pip(self) -> str:
        return (self.root / "pip").read_text() if (self.root / "pip").exists() else ""

    def assert_one_line(self, said: str, *words: str) -> None:
        lines = [line for line in said.splitlines() if all(word in line for word in words)]
        self.assertEqual(len(lines), 1, f"{words} in {said!r}")


class Packages(Machine):
    NEEDED = '"${BUILD_PACKAGES[@]}" libgtest-dev'

    def test_ubuntu_22_04_has_all_that_is_needed(self) -> None:
        done = self.bash(f"missing {self.NEEDED} libbenchmark-dev")
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_older_versions_will_not_do(self) -> None:
        self.known(nlohmann_json="3.9.1", CLI11="1.9.1", gtest="1.10.0", benchmark="1.5.2")
        self.program("cmake", "echo cmake version 3.18.4")
        self.program("c++", "echo 10.2.1")
        self.assertEqual(self.bash(f"missing {self.NEEDED} libbenchmark-dev").stdout.split(),
                         "build-essential cmake libcli11-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev".split())

    def test_headers_in_a_prefix_are_what_cmake_will_find(self) -> None:
        self.known()
        for header in ("nlohmann/json.hpp", "CLI/CLI.hpp", "gtest/gtest.h"):
            self.header(header)
        self.assertEqual(self.bash(f"missing {self.NEEDED}").stdout, "")
        self.assertEqual(self.bash("missing libboost-dev", CMAKE_PREFIX_PATH="").stdout, "libboost-dev\n")
        self.assertEqual(self.bash("missing libboost-dev", CMAKE_PREFIX_PATH="", BOOST_ROOT=str(self.root / "prefix")).stdout, "")

    def test_python_3_10_draws_the_page(self) -> None:
        for minor, found in ((9, False), (10, True), (13, True)):
            self.program("python3", f'[[ $2 == *"({{}}, "* ]]; [[ $2 =~ \\(3,\\ ([0-9]+)\\) ]] && exit $(({minor} < BASH_REMATCH[1]))')
            self.assertEqual(self.bash("PATH=$ROOT/bin find_python").stdout == "python3\n", found, minor)

    def test_what_is_missing_is_installed_at_once(self) -> None:
        (self.bin / "ninja").unlink()
        self.apt_get("ninja")
        done = self.bash(f"require_packages {self.NEEDED}; require_packages {self.NEEDED}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.asked_apt(), "-qy update\n-qy install --no-install-recommends ninja-build\n")
        self.assertEqual(self.asked_pip(), "")

    def test_without_root_builders_come_from_pypi(self) -> None:
        self.apt_get()
        self.program("id", "echo 1000")
        self.known(nlohmann_json="3.9.1", CLI11="2.1.2", gtest="1.11.0")
        self.program("cmake", "echo cmake version 3.18.4")
        tools = self.root / ".venv-build/bin"
        tools.mkdir(parents=True)
        (tools / "cmake").write_text(f"#!{shutil.which('bash')}\necho cmake version 3.31.6\n")
        (tools / "cmake").chmod(0o755)
        header = self.root / ".venv-build/lib/python3.10/site-packages/nlohmann_json/include/nlohmann/json.hpp"
        header.parent.mkdir(parents=True)
        header.touch()
        for run in range(2):  # the second run finds everything in place
            done = self.bash(f"require_packages {self.NEEDED}; command -v cmake; command -v python3")
            self.assertEqual((done.returncode, done.stdout.split()),
                             (0, [str(self.root / ".venv-build/tools/cmake"), str(self.bin / "python3")]), done.stderr)
            self.assertEqual(self.asked_pip(), "scripts/requirements-build.txt\n")
        self.assertEqual(self.asked_apt(), "")

    def refused(self, packages: str, *words: str) -> None:
        done = self.bash(f"require_packages {packages}")
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr, "error: ", "docs/building.md", *words)

    def test_no_apt_get_no_sudo_and_no_network_are_named_with_a_way_out(self) -> None:
        self.known(CLI11="1.9.1", nlohmann_json="3.10.5")
        self.refused("libcli11-dev libclang-rt-dev", "libcli11-dev", "1.9.1", "2.1", "libclang-rt-dev", "no apt-get")
        self.apt_get()
        self.program("id", "echo 1000")
        self.refused("libcli11-dev", "1.9.1", "2.1", "no sudo", "as root: apt-get install libcli11-dev")
        self.program("sudo", "exit 1")
        self.refused("libcli11-dev", "1.9.1", "build/apt.log")
        self.assertEqual(self.asked_apt(), "")
        self.program("id", "echo 0")
        self.refused("libcli11-dev", "1.9.1", "2.1", "no newer")  # apt-get has no newer version

    def test_what_is_only_wanted_is_gone_without(self) -> None:
        done = self.bash("want_packages 'two machines' openmpi-bin; echo on")
        self.assertEqual((done.returncode, done.stdout), (0, "on\n"))
        self.assert_one_line(done.stderr, "warning: ", "two machines", "openmpi-bin", "no apt-get")


class Cuda(Machine):
    def gpus(self, driver: str, *devices: str) -> None:
        """Writes an nvidia-smi that lists these devices, such as "Tesla T4, 7.5"."""
        lines = "\n".join(f"{index}, {device}" for index, device in enumerate(devices))
        drivers = "\n".join([driver] * len(devices))
        self.program("nvidia-smi", f"""case "$*" in
  *list-gpus*) echo 'GPU 0: some (UUID: GPU-1)' ;;
  *compute_cap*) echo '{lines}' ;;
  *driver_version*) echo '{drivers}' ;;
esac""")

    def nvcc(self, release: str, refuses: str = "") -> None:
        """Writes an nvcc that refuses these C++ compilers; "default" is the compiler that nvcc takes without -ccbin."""
        listed = " ".join(f"compute_{each}" for each in LISTED.get(release, "50").split())
        self.program("nvcc", f"""case "$*" in
  --version) echo 'Cuda compilation tools, release {release}, V{release}.99' ;;
  --list-gpu-arch) printf '%s\\n' {listed} ;;
  *) compiler=default; [[ $1 != -ccbin ]] || compiler=$2
     [[ ' {refuses} ' != *" $compiler "* ]] || {{ echo 'x.h:1:2: error: #error -- unsupported GNU version!'; exit 1; }} ;;
esac""")

    def chosen(self, commands: str = "", **environment: str) -> tuple[str, str, str]:
        """The chosen preset, its architectures, and stderr."""
        done = self.bash(f'{commands} choose_backend; echo "$PRESET ${{ARCHITECTURES:-}}"', **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        preset, _, architectures = done.stdout.strip().partition(" ")
        return preset, architectures, done.stderr

    def goes_on_without(self, *words: str, commands: str = "") -> None:
        preset, _, said = self.chosen(commands)
        self.assertEqual(preset, "cpu")
        self.assert_one_line(said, "CPU only: ", *words)
        self.assertEqual(self.asked_pip(), "", "nothing large is downloaded before that")
        done = self.bash(f"{commands} choose_backend", STEPLADDER_CUDA="ON")
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr, "error: STEPLADDER_CUDA=ON: ", *words)

    def test_code_is_compiled_for_the_cards_that_are_here(self) -> None:
        self.nvcc("12.4")
        self.gpus("550.54.15", "Tesla T4, 7.5", "NVIDIA H100 80GB HBM3, 9.0", "Tesla T4, 7.5")
        self.assertEqual(self.chosen(), ("cuda", "75-real;90a-real", ""))
        self.assertEqual(self.chosen(STEPLADDER_ARCHITECTURES="all"), ("cuda", "", ""))
        self.assertEqual(self.chosen(STEPLADDER_ARCHITECTURES="75-virtual"), ("cuda", "75-virtual", ""))
        self.assertEqual(self.bash("choose_backend", STEPLADDER_ARCHITECTURES="turing").returncode, 1)

    def test_an_old_card_beside_a_good_one_is_left_out(self) -> None:
        self.nvcc("13.0")
        self.gpus("580.65.06", "NVIDIA GeForce GTX 1080, 6.1", "NVIDIA A100-SXM4-40GB, 8.0")
        preset, architectures, said = self.chosen()
        self.assertEqual((preset, architectures), ("cuda", "80-real"))
        self.assert_one_line(said, "device 0", "GTX 1080", "sm_61", "sm_75")

    def test_a_card_newer_than_the_toolkit_gets_ptx(self) -> None:
        self.nvcc("12.4")
        self.gpus("580.65.06", "NVIDIA GeForce RTX 5090, 12.0", "NVIDIA A100-SXM4-40GB, 8.0")
        preset, architectures, said = self.chosen()
        self.assertEqual((preset, architectures), ("cuda", "80-real;90-virtual"))
        self.assert_one_line(said, "sm_120", "compute_90")

    def test_old_cards_alone_leave_the_cpu(self) -> None:
        self.gpus("580.65.06", "Tesla V100-SXM2-16GB, 7.0")
        self.goes_on_without("sm_75")

    def test_a_driver_older_than_525_leaves_the_cpu(self) -> None:
        self.nvcc("12.4")
        self.gpus("470.223.02", "Tesla T4, 7.5")
        self.goes_on_without("470.223.02", "525")

    def test_wheels_that_the_driver_cannot_run_are_not_downloaded(self) -> None:
        self.gpus("550.54.15", "Tesla T4, 7.5")
        self.goes_on_without("550.54.15", "580", "toolkit")

    def test_a_toolkit_that_the_driver_cannot_run_is_not_used(self) -> None:
        self.nvcc("13.0")
        self.gpus("550.54.15", "Tesla T4, 7.5")
        self.goes_on_without("550.54.15", "580", "toolkit")
        self.assert_one_line(self.chosen()[2], "nvcc", "13.0", "580", "not used")

    def test_a_toolkit_older_than_12_is_not_used(self) -> None:
        self.nvcc("11.8")
        self.gpus("550.54.15", "Tesla T4, 7.5")
        self.assert_one_line(self.chosen()[2], "nvcc", "11.8", "12.0", "not used")

    def test_no_room_for_the_wheels_leaves_the_cpu(self) -> None:
        self.gpus("580.65.06", "Tesla T4, 7.5")
        self.program("df", "printf 'Avail\\n900\\n'")
        self.goes_on_without("1.7 GB", str(self.root), "toolkit")

    def test_wheels_come_where_the_driver_runs_them(self) -> None:
        self.gpus("580.65.06", "Tesla T4, 7.5")
        self.assertEqual(self.chosen("choose_host_compiler() { :; }; choose_architectures() { :; };")[0], "cuda")
        self.assertEqual(self.asked_pip(), "scripts/requirements-cuda.txt\n")

    def test_nvcc_gets_a_compiler_that_it_takes(self) -> None:
        self.gpus("550.54.15", "Tesla T4, 7.5")
        self.nvcc("12.4", refuses="default g++-14")
        done = self.bash("choose_backend; echo $PRESET $CUDAHOSTCXX")
        self.assertEqual(done.stdout, "cuda g++-13\n", done.stderr)
        self.nvcc("12.4", refuses="default g++-14 g++-13 g++-12 g++-11")
        self.goes_on_without("unsupported GNU version", "CUDAHOSTCXX")


class Ranges(unittest.TestCase):
    def test_cmake_3_22_reads_the_presets(self) -> None:
        self.assertLessEqual(json.loads((SOURCE / "CMakePresets.json").read_text())["version"], 3)
        oldest = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        self.assertIn(f"[cmake]={oldest}", (SOURCE / "scripts/setup.sh").read_text())


if __name__ == "__main__":
    unittest.main()

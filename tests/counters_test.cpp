// The counters of a step's kernels, as ncu prints them; a script stands in for ncu.
#include "bench/run/counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "bench/report/profile_report.h"
#include "model/error.h"
#include "tests/files.h"

namespace stepladder {
namespace {

constexpr const char* kHeader =
    R"("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",)"
    R"("CC","dram__bytes_read.sum","dram__bytes_write.sum","lts__t_bytes.sum","smsp__inst_executed.sum")"
    "\n"
    R"("","","","","","","","","","","","byte","byte","byte","inst")"
    "\n";

/// The row of a kernel.
std::string row(int id, const std::string& function, const std::string& counters) {
  return cat('"', id, R"(","42","rung","127.0.0.1",")", function,
             R"csv(","1","7","(256, 1, 1)","(12, 1, 1)","0","9.0",)csv", counters, "\n");
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A folder at the front of PATH, with a script for ncu.
class CountersTest : public testing::Test {
 protected:
  ~CountersTest() override { ::setenv("PATH", before_.c_str(), 1); }

  /// Makes `ncu` tell its version, and otherwise do what `script` does.
  void write_ncu(const std::string& script) {
    write_script(folder_ / "ncu",
                 cat("if [ \"$1\" = --version ]; then\n  echo 'NVIDIA (R) Nsight Compute'\n",
                     "  echo 'Version 2025.3.1.0 (build 36398880)'\n  exit 0\nfi\n", script));
    ::setenv("PATH", cat(folder_ / "", ":", before_).c_str(), 1);
  }
  std::vector<KernelCounters> count(const std::vector<std::string>& rung = {"true"}, int64_t number = 6) {
    return count_kernels(find_ncu(), rung, number, 60.0);
  }

  const TempFolder folder_;
  const std::string before_ = std::getenv("PATH");
};

TEST_F(CountersTest, AreReadFromWhatNcuPrintsBesideTheRung) {
  write_file(folder_ / "said",
             cat("==PROF== Connected to process 42\nstep 1 loss \"4.2\"\n\"quoted\", by the rung\n", kHeader,
                 row(0, "sgemm_kernel", R"("1,024","512","2,048.5","1,000,000")"),
                 row(1, "a \"\"b\"\", c", R"("1","2","3","4")"), "==PROF== Disconnected\n"));
  write_ncu(cat("cat ", folder_ / "said"));
  const auto kernels = count();
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].function, "sgemm_kernel");
  EXPECT_EQ(kernels[0].dram_read, 1024.0);
  EXPECT_EQ(kernels[0].dram_written, 512.0);
  EXPECT_EQ(kernels[0].l2, 2048.5);
  EXPECT_EQ(kernels[0].instructions, 1e6);
  EXPECT_EQ(kernels[1].function, R"(a "b", c)");
  EXPECT_EQ(kernels[1].instructions, 4.0);
  EXPECT_EQ(find_ncu().version, "2025.3.1.0");
}

TEST_F(CountersTest, AreAskedOfOneStepOfTheRung) {
  write_file(folder_ / "csv", cat(kHeader, row(0, "k", R"("1","2","3","4")")));
  write_ncu(cat("echo \"$@\" >", folder_ / "asked", "\ncat ", folder_ / "csv"));
  count({"rung", "--steps", "6"}, 6);
  const std::string asked = read_file(folder_ / "asked");
  for (const char* words : {"--range-filter ::6", "--nvtx-include step/", "--graph-profiling node",
                            "--clock-control none", "dram__bytes_read.sum", " rung --steps 6"})
    EXPECT_NE(asked.find(words), std::string::npos) << words << " in " << asked;
}

TEST_F(CountersTest, SayWhatIsWrongAndWhatToDo) {
  write_ncu(
      "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU' >&2; exit "
      "1");
  EXPECT_TRUE(says(error_of([&] { count(); }),
                   {"ERR_NVGPUCTRPERM", "root", "NVreg_RestrictProfilingToAdminUsers=0"}));
  write_ncu("echo '==ERROR== ERR_NVGPUCTRPERM - ...'");  // by some versions with exit code 0
  EXPECT_TRUE(says(error_of([&] { count(); }), {"ERR_NVGPUCTRPERM"}));
  write_ncu("echo '==ERROR== unrecognised option --graph-profiling'; exit 1");
  EXPECT_TRUE(says(error_of([&] { count(); }), {"--graph-profiling"}));
  write_ncu("echo '==WARNING== No kernels were profiled.'");
  EXPECT_TRUE(says(error_of([&] { count(); }), {"no kernel"}));
  write_ncu("sleep 60");
  EXPECT_TRUE(says(error_of([&] { count_kernels(find_ncu(), {"true"}, 1, 0.05); }), {"--timeout"}));
  write_ncu("");
  ::setenv("PATH", (folder_ / "nowhere").c_str(), 1);
  if (const std::string error = error_of([&] { find_ncu(); }); !error.empty()) {  // unless a toolkit has one
    EXPECT_TRUE(says(error, {"ncu", "PATH", "/usr/local/cuda/bin", "install"})) << error;
  }
}

TEST(KernelCounters, RefuseUnitsAndValuesThatTheyDoNotKnow) {
  const auto error = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return error_of([&] { kernel_counters(lines); });
  };
  const std::string good = row(0, "k", R"("1","2","3","4")");
  EXPECT_EQ(error(kHeader + good), "");
  std::string scaled = kHeader;
  scaled.replace(scaled.find("\"byte\""), 6, "\"Kbyte\"");
  EXPECT_TRUE(says(error(scaled + good), {"Kbyte", "dram__bytes_read.sum", "byte"}));
  EXPECT_TRUE(
      says(error(kHeader + row(0, "k", R"("1","n/a","3","4")")), {"n/a", "dram__bytes_write.sum", "k"}));
  std::string lacking = kHeader;
  lacking.replace(lacking.find("lts__t_bytes.sum"), 16, "lts__t_other.sum");
  EXPECT_TRUE(says(error(lacking + good), {"lts__t_bytes.sum"}));
}

TEST(KernelCounters, AreSummedByTheTypeOfTheOpThatLaunchedTheKernel) {
  const auto slice = [](const char* name, const char* type) {
    return Json{{"ph", "X"}, {"name", name}, {"cat", type}, {"args", {{"op", "an op"}}}};
  };
  const Json timeline = {
      {"traceEvents",
       {{{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", "13"}}}},
        {{"ph", "X"}, {"name", "sum"}, {"cat", "GEMM"}, {"args", {{"bytes", 1.0}}}},  // an op's slice
        slice("sum<float>", "reduction"),
        slice("gemm", "GEMM"),
        slice("sum<half>", "LayerNorm"),
        slice("copy", "copy")}}};
  const Json profile = {
      {"kernel_types", {{{"type", "GEMM"}}, {{"type", "LayerNorm"}}, {{"type", "reduction"}}}},
      {"ops",
       {{{"type", "GEMM"}, {"bytes", 100.0}},
        {{"type", "GEMM"}, {"bytes", 20.0}},
        {{"type", "LayerNorm"}, {"bytes", 7.0}},
        {{"type", "reduction"}, {"bytes", 9.0}}}}};
  const std::vector<KernelCounters> kernels = {{"sum", 1, 2, 3, 4},
                                               {"gemm", 10, 20, 30, 40},
                                               {"sum", 5, 6, 7, 8},
                                               {"sum", 100, 0, 0, 0},  // the timeline has two `sum`
                                               {"stray", 1000, 0, 0, 0}};
  const Json counters = counters_by_type({"ncu", "2025.3.1.0"}, kernels, timeline, profile);
  EXPECT_TRUE(says(counters["source"].get<std::string>(), {"2025.3.1.0"}));
  const auto counted = [](const char* type, int64_t count, double read, double written, double l2,
                          double instructions, const Json& floor) {
    return Json{{"type", type},
                {"count", count},
                {"dram_read_bytes", read},
                {"dram_written_bytes", written},
                {"l2_bytes", l2},
                {"instructions", instructions},
                {"floor_bytes", floor}};
  };
  const Json expected = {counted("GEMM", 1, 10, 20, 30, 40, 120.0), counted("LayerNorm", 1, 5, 6, 7, 8, 7.0),
                         counted("reduction", 1, 1, 2, 3, 4, 9.0),
                         counted("other", 2, 1100, 0, 0, 0, Json())};
  EXPECT_EQ(counters["kernel_types"], expected);
}

TEST(ProfileReport, HasATableOfTheCountersAndTheirSum) {
  const Json rows = {{{"type", "GEMM"},
                      {"count", 2},
                      {"dram_read_bytes", 3e6},
                      {"dram_written_bytes", 1e6},
                      {"l2_bytes", 8e6},
                      {"instructions", 5e6},
                      {"floor_bytes", 2e6}},
                     {{"type", "other"},
                      {"count", 1},
                      {"dram_read_bytes", 1e6},
                      {"dram_written_bytes", 0},
                      {"l2_bytes", 1e6},
                      {"instructions", 1e6},
                      {"floor_bytes", nullptr}}};
  Json file;
  file["profile"]["counters"] = {{"source", "Nsight Compute 2025.3.1.0"}, {"kernel_types", rows}};
  const Section section = section_of_profile(file);
  const auto table = std::ranges::find(section.tables, "Counters", &Table::heading);
  ASSERT_NE(table, section.tables.end());
  const std::string csv = table->csv();
  EXPECT_TRUE(says(csv, {"\nGEMM,2,3.0,1.0,8.0,2.0,2.00,5.0\n", "\nother,1,1.0,0.0,1.0,-,-,1.0\n",
                         "\nstep,3,4.0,1.0,9.0,2.0,2.50,6.0\n"}))
      << csv;
}

}  // namespace
}  // namespace stepladder

#include <iostream>

#include "bench/cli/commands.h"
#include "bench/plan/ladder_file.h"
#include "bench/verdict/certificate.h"
#include "model/error.h"

namespace stepladder {
namespace {

struct CertifyOptions {
  static constexpr const char* kCertificate = "Certificate";
  std::string file, format = "text";
  std::optional<double> loss;
  bool wide = false;

  std::vector<Option> options() {
    return {{"FILE", &file, "", "results file of runs from several seeds, each of the same steps"},
            {"loss", &loss, "LOSS",
             "that the mean validation loss after the last step is at most; default: of --certify-loss",
             kCertificate, Allowed{0, 1000}},
            {"format", &format, "NAME", "of the table", kCertificate, {"text", "markdown"}},
            wide_option(wide, kCertificate)};
  }
};

int certify(CertifyOptions& options) {
  const Results results = load_measured(options.file);
  if (!options.loss) options.loss = number_at(results.plan, "certify_loss");
  if (!options.loss) throw InputError("certify: which loss? give --loss");
  const std::vector<Certificate> all = certificates(results, *options.loss);
  if (all.empty()) throw InputError(cat(options.file, " has no run of a rung"));
  const Section section = section_of(all);
  std::cout << (options.format == "markdown" ? section.markdown() : section.terminal(options.wide))
            << std::flush;
  return exit_code(all);
}

}  // namespace

Command certify_command() {
  return command<CertifyOptions>("certify", "is a validation loss reached in a fixed number of steps?",
                                 certify);
}

}  // namespace stepladder

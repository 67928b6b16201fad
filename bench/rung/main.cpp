// main() of every rung's executable: runs the one rung that is linked in.
#include <csignal>
#include <filesystem>
#include <new>

#include "bench/base/text.h"
#include "bench/rung/app.h"
#include "model/limits.h"

int main(int argc, char** argv) {
  using namespace stepladder;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that passes `ulimit -f` is then an error that names it
  end_in_spite_of_limits();
  RungApp app(linked_rungs().front());
  try {
    return app.run(argc, argv);
  } catch (const OutOfMemoryError& e) {
    return app.fail("oom", e.what(), e.code());
  } catch (const std::bad_alloc&) {
    return app.fail("oom", "out of host memory: use a smaller --batch, --seq or --model", kExitFailed);
  } catch (const UnsupportedError& e) {
    return app.fail("unsupported", e.what(), e.code());
  } catch (const DivergedError& e) {
    return app.fail("diverged", e.what(), e.code());
  } catch (const Error& e) {
    return app.fail("error", e.what(), e.code());
  } catch (const std::filesystem::filesystem_error& e) {
    return app.fail("error", path_error(e), kExitUsage);
  } catch (const std::exception& e) {
    return app.fail("error", e.what(), kExitFailed);
  }
}

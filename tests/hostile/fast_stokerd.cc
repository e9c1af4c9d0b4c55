// fast_stokerd ARGUMENT…: stokerd with a clock that runs 300 times as fast, for tests of its
// timeouts.
#include <iostream>

#include "daemon/app/command_line.h"
#include "daemon/app/daemon_app.h"
#include "shared/base/clock.h"
#include "shared/config/load_config.h"

namespace {

class FastClock final : public stoker::Clock {
 public:
  std::chrono::nanoseconds monotonic() const override {
    return 300 * (stoker::system_clock().monotonic() - started_);
  }
  std::chrono::system_clock::time_point wall() const override {
    return stoker::system_clock().wall();
  }

 private:
  const std::chrono::nanoseconds started_ = stoker::system_clock().monotonic();
};

}  // namespace

int main(int argc, char** argv) {
  using namespace stoker;
  const auto parsed = app::parse_command_line(argc, argv);
  if (!parsed.command) return static_cast<int>(parsed.exit_code);
  auto config = config::load_config(parsed.command->config, parsed.command->overrides);
  if (!config.ok()) {
    std::cerr << config.status().message() << "\n";
    return static_cast<int>(ExitCode::kConfiguration);
  }
  config->run.dir = parsed.command->run_dir;
  FastClock clock;
  return static_cast<int>(app::DaemonApp(*config, *parsed.command, clock).run());
}

// ring_test_producer: producer process for tests. Usage: ring_test_producer FD INDEX GENERATION
// [hold…]
// Fills tickets until the ring ends, or stops itself at the first ticket: `hold`: with half of the
// slot written; `hold_report`: after also reporting a sample error; `hold_published`: directly
// after publishing.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <string_view>

#include "tests/shared/ring/ring_fixture.h"

int main(int argc, char** argv) {
  using namespace stoker;
  using namespace stoker::ring;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 4) return 64;
  auto ring = ShmRing::attach(UniqueFd(std::atoi(argv[1])));
  if (!ring.ok()) return 78;
  const ProducerId id{.index = static_cast<uint32_t>(std::atoi(argv[2])),
                      .generation = static_cast<uint32_t>(std::atoi(argv[3]))};
  const std::string_view how = argc > 4 ? argv[4] : "";
  while (true) {
    const auto claim = (*ring)->claim(id, kTestTimeout);
    if (!claim.ok()) return claim.status().code() == StatusCode::kClosed ? 0 : 70;
    if (how == "hold") {
      fill(claim->slot.first(claim->slot.size() / 2), claim->ticket + 1);
      ::raise(SIGSTOP);
    }
    fill(claim->slot, ~claim->ticket);  // so that an incomplete slot differs from a finished one
    (*ring)->report_sample_error(
        {.ticket = claim->ticket, .sample = claim->ticket, .reason = "process"});
    if (how == "hold_report") ::raise(SIGSTOP);
    fill(claim->slot, claim->ticket);
    (*ring)->publish(id, *claim);
    if (how == "hold_published") ::raise(SIGSTOP);
  }
}

// A reader process for the tests: ring_test_producer FD INDEX GENERATION [hold]
// Fills tickets until the ring ends. `hold`: claims one ticket, writes half of it and stops itself.
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
  const bool hold = argc > 4 && std::string_view(argv[4]) == "hold";
  while (true) {
    const auto claim = (*ring)->claim(id, kLong);
    if (!claim.ok()) return claim.status().code() == Code::kClosed ? 0 : 70;
    if (hold) {
      fill(claim->slot.first(claim->slot.size() / 2), claim->ticket + 1);
      ::raise(SIGSTOP);
    }
    fill(claim->slot, ~claim->ticket);  // so that a half-done slot can be told from a finished one
    (*ring)->report_bad_sample(
        {.ticket = claim->ticket, .sample = claim->ticket, .reason = "process"});
    fill(claim->slot, claim->ticket);
    (*ring)->publish(id, *claim);
  }
}

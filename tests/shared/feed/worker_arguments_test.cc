#include "shared/feed/worker_arguments.h"

#include <string>

#include <gtest/gtest.h>

namespace stoker::feed {
namespace {

TEST(WorkerArgumentsTest, LeavesOutWhatIsNotPassed) {
  std::string line;
  for (const std::string& word : to_command_line({.config_path = "c.yaml",
                                 .plan_ticket = uint64_t{1} << 40,
                                 .ring_fd = 3,
                                 .producer_users = {0, 1000},
                                 .operation = Operation::kTokenize}))
    line += word + ' ';
  EXPECT_EQ(line,
            "--config c.yaml --start-ticket 1099511627776 --start-epoch 0 --rank 0 --world-size 1 "
            "--ring-fd 3 --worker-index 0 --num-workers 1 --producer-index 0 "
            "--producer-generation 0 --num-threads 1 --producer-user 0 --producer-user 1000 "
            "--dataset train --operation tokenize --parent-pid 0 ");
}

}  // namespace
}  // namespace stoker::feed

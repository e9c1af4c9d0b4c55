// stokerctl on the directories of groups: of a sharded optimizer, and without their chief.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/safetensors.h"
#include "tests/support/python_script.h"
#include "tests/system/group_run_fixture.h"

namespace stoker::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Of a checkpoint in one file each, with the names of a flattened state_dict: name, dtype, shape, SHA-256.
std::string lines_of_state_dict(const std::string& checkpoint) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& file, const auto& rename) {
    const auto opened = checkpoint::SafetensorsFile::open(checkpoint + "/" + file);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    for (TensorSpec spec : (*opened)->tensors()) {
      std::string bytes(spec.bytes(), '\0');
      const Status read = (*opened)->read(spec.name, std::as_writable_bytes(std::span(bytes)));
      ASSERT_TRUE(read.ok()) << read.to_string();
      spec.name = rename(spec.name);
      lines.push_back(to_string(spec) + " " + sha256_hex(bytes) + "\n");
    }
  };
  add("model.safetensors", [](const std::string& name) { return "model." + name; });
  add("optimizer.safetensors", [](const std::string& name) {  // exp_avg.0.weight
    const size_t end = name.find('.');
    return "optim.state." + name.substr(end + 1) + "." + name.substr(0, end);
  });
  add("trainer_state.safetensors", [](const std::string& name) { return "state." + name; });
  std::ranges::sort(lines);
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

// One process has the same bytes in complete files.
TEST_F(GroupRunTest, ExportsShardedCheckpointForDistributedCheckpointOfPyTorch) {
  configure(8);
  train_alone(run_dir(kAlone));
  expect_success(start_group(2, run_dir(), kSharded));
  ASSERT_TRUE(fs::exists(newest_checkpoint(run_dir()) + "/optimizer-00002-of-00002.safetensors"));
  const std::string folder = path("exported");
  Process exporting = ctl(
      run_dir(), {"export", "latest", "--format", "dcp", "--include", "all", "--output", folder},
      "export");
  ASSERT_EQ(code_of(exporting), 0) << log_of("export");
  const auto loaded = try_run_python(STOKER_TORCH_PY, {"load_any_dcp", folder});
  if (!loaded) GTEST_SKIP() << "set STOKER_PYTHON to a Python that can import torch";
  ASSERT_EQ(loaded->code, 0) << loaded->err;
  EXPECT_EQ(loaded->out, lines_of_state_dict(newest_checkpoint(run_dir(kAlone))));
}

TEST_F(GroupRunTest, ShowsThatRankRunsWithoutChief) {
  configure_endless();
  socket_ = "auto";
  auto ranks = start_group(2, run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run_dir()) > 0; }));
  ranks[1]->signal(SIGSTOP);  // it would notice the loss
  ASSERT_TRUE(wait_until(kPatience, [&] { return is_stopped(ranks[1]->pid()); }));
  ASSERT_TRUE(ranks[0]->kill());
  const auto status = [&](const std::string& log) {
    Process process = ctl(run_dir(), {"status"}, log);
    EXPECT_EQ(code_of(process), 69);
    return log_of(log);
  };
  EXPECT_THAT(status("lost"), HasSubstr("the chief (rank 0) was killed or its machine crashed; "
                                        "still running: rank 1; these exit when they notice it"));
  ranks[1]->signal(SIGCONT);
  EXPECT_EQ(code_of(*ranks[1]), 73);
  const std::string crashed = status("crashed");
  EXPECT_THAT(crashed, HasSubstr("stokerd was killed or the machine crashed"));
  EXPECT_THAT(crashed, Not(HasSubstr("still running")));
}

}  // namespace
}  // namespace stoker::test

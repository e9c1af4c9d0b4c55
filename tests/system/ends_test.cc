// How the programs end. 70 means a defect: systemd starts such a run again without end, so that a fault of the
// user or of the machine must have another code, with a text that says what to change.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using ::testing::HasSubstr;

struct End {
  const char* command;  // of the shell
  int code;             // as docs/operations.md has it
  const char* text;     // in the output
};

// Of `done`, a finished run, with the configuration c.yaml.
const std::vector<End>& ends() {
  static const std::vector<End> kEnds{
      // ---- stokerd
      {"stokerd --config c.yaml --run-dir done", 0, "max_steps reached"},
      {"stokerd --config c.yaml --check-config", 0, "max_steps: 20"},
      {"stokerd --version", 0, "stoker"},
      // A run of an earlier release keeps its files; a new run in its directory does not.
      {"mkdir i && stokerd --config c.yaml --run-dir i --check-config --set data.train='{format: "
       "csv, "
       "path: a, glob: \"**/*\", fields: {label: y}}' >i/config.yaml && ! stokerd --config c.yaml "
       "--run-dir i --check-config --set data.train='{format: csv, path: a, fields: {label: y}}' | "
       "grep -q 'glob.*[.]csv' && echo the same files",
       0, "the same files"},
      {"stokerd --config c.yaml --run-dir i --fresh --check-config --set data.train='{format: csv, "
       "path: a, fields: {label: y}}' | grep 'glob.*[.]csv'",
       0, "glob"},
      {"stokerd --nonsense", 64, "--nonsense"},
      {"stokerd", 64, "--config"},
      {R"sh(stokerd --config c.yaml --run-dir "$(printf 'r\377')")sh", 64, "is not UTF-8"},
      {"stokerd --config gone.yaml --run-dir a", 78,
       "gone.yaml: No such file or directory; --config is the path of a configuration: see "
       "stoker.yaml(5)"},
      {"stokerd gone.yaml", 64, "write stokerd --config gone.yaml"},
      {"stokerd --config c.yaml --run-dir a --set train.max_steps=x", 78, "train.max_steps"},
      {"stokerd --config c.yaml --run-dir a --set data.train='{format: csv, path: gone.csv, "
       "fields: "
       "{label: y}}'",
       78, "gone.csv"},
      {"stokerd --config c.yaml --run-dir a --set train.micro_batch_size=1 --set model='{name: "
       "sequential, layers: [{linear: {out_features: 8}}, batch_norm, relu, linear]}'",
       78, "train.micro_batch_size"},
      {"stokerd --config c.yaml --run-dir done --set model.hidden_sizes='[8]'", 78,
       "--allow-model-change"},
      {"cp -r done o && stokerd --config c.yaml --run-dir o --set optimizer='{name: sgd}'", 78,
       "--allow-model-change"},
      {"stokerd --config c.yaml --run-dir o --set optimizer='{name: sgd}' --set "
       "train.max_steps=30 --allow-model-change",
       0, "max_steps reached"},
      {"stokerd --config c.yaml --run-dir b --set optimizer='{name: sgd, lr: 1000}' --set "
       "scheduler='{name: constant}' --set train.max_grad_norm=null --set "
       "data='{train: {format: synthetic, input_shape: [4], num_samples: 50, num_targets: 2}}' "
       "--set task='{name: regression}'",
       65, "not finite"},
      {"cp -r done c && for f in c/checkpoints/*/model.safetensors; do printf x >>$f; done && "
       "stokerd --config c.yaml --run-dir c",
       65, "checkpoint"},
      {"cp -r done d && rm -r d/checkpoints/* && stokerd --config c.yaml --run-dir d", 65,
       "checkpoints"},
      {"cp -r done e && flock e/LOCK stokerd --config c.yaml --run-dir e", 75, "LOCK"},
      {R"sh(cp -r done f && printf '{"step":20,"starts":4,"machine":"%s"}' )sh"
       R"sh("$(cat /proc/sys/kernel/random/boot_id)" >f/restart_count.json && )sh"
       "stokerd --config c.yaml --run-dir f",
       93, "without a checkpoint newer than step 20"},
      {R"sh(cp -r done g && printf '{"step":20,"starts":4,"machine":"before a power cut"}' )sh"
       ">g/restart_count.json && stokerd --config c.yaml --run-dir g",
       0, "max_steps reached"},
      {"prlimit --nofile=6 stokerd --config c.yaml --run-dir files6", 74, "ulimit -n"},
      {"stokerd --config c.yaml --run-dir h --set model='{name: plugin, path: " STOKER_PLUGINS
       "/odd_plugin.so, args: {does: throws in forward}}'",
       78, "forward() throws"},
      // ---- stoker-feed, which stokerd starts
      {"stoker-feed", 64, "--config"},
      {"stoker-feed --config gone.yaml --index-dir done/index --dataset-fingerprint x --ring-fd 0 "
       "--quarantine-fd 1 --worker-index 0 --producer-index 0 --producer-generation 0",
       78, "is not a ring"},
      // ---- stoker-eval
      {"stoker-eval --run-dir done", 0, "evaluation finished"},
      {"stoker-eval --nonsense", 64, "--nonsense"},
      {"stoker-eval --run-dir gone", 78, "gone"},
      {"stoker-eval --run-dir done --set eval.batch_size=0", 78, "eval.batch_size"},
      {"stoker-eval --checkpoint c/checkpoints/step-000000020", 65, "bytes, 436 were committed"},
      // ---- stokerctl
      {"stokerctl --run-dir done list", 0, "20"},
      {"stokerctl --nonsense", 64, "--nonsense"},
      {"stokerctl --socket gone.sock status", 69, "gone.sock"},
      {"stokerctl --run-dir c verify", 65, "CORRUPT"},
      // ---- stoker-web; its output is a FIFO, from which a line can be read when it listens
      {"stoker-web --version", 0, "stoker-web"},
      {"stoker-web --nonsense", 64, "--nonsense"},
      {"stoker-web", 64, "DIR"},
      {"stoker-web --listen 127.0.0.1 done", 64, "--listen"},
      {"stoker-web --listen 0.0.0.0:9760 done", 64, "--listen"},
      {"stoker-web --listen unix:/tmp/socket done", 64, "--listen"},
      {"stoker-web gone", 78, "gone: no such directory"},
      {"stoker-web c.yaml", 78, "c.yaml: no such directory"},
      {"mkfifo term && { stoker-web --listen 127.0.0.1:0 done >term & } && read -r page <term && "
       "echo $page && kill -TERM $! && wait $!",
       0, "http://127.0.0.1:"},
      {"mkfifo int && { stoker-web --listen 127.0.0.1:0 done >int & } && read -r page <int && "
       "echo $page && kill -INT $! && wait $!",
       0, "http://127.0.0.1:"},
      {"mkfifo port && { stoker-web --listen 127.0.0.1:0 done >port & } && read -r page <port && "
       "page=${page#http://} && stoker-web --listen ${page%/} done; code=$?; kill $!; exit $code",
       69, "--listen: "},
  };
  return kEnds;
}

class EndsTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    write_config(R"(
data:
  train: {format: synthetic, input_shape: [4], num_samples: 50, num_classes: 3}
  val: {format: synthetic, input_shape: [4], num_samples: 50, num_classes: 3}
model: {name: mlp, hidden_sizes: [4]}
task: {name: classification}
scheduler: {warmup_steps: 0}
train: {max_steps: 20, micro_batch_size: 8, device: cpu, num_threads: 1}
eval: {priority: normal}
metrics: {tensorboard: false}
)",
                 "c.yaml");
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  }

  // In the folder of the test, with the programs in PATH.
  Exit run(const std::string& command, const std::string& output) const {
    Process shell(
        {"/bin/sh", "-c", "cd " + folder_ + " && PATH=" STOKER_BIN_DIR ":$PATH && " + command},
        path(output + ".out"));
    const auto exit = shell.wait(kPatience);
    EXPECT_TRUE(exit) << "does not end";
    return exit.value_or(Exit{.code = -1});
  }
};

TEST_F(EndsTest, HaveTheirCodes) {
  ASSERT_EQ(run("stokerd --config c.yaml --run-dir done", "done").code, 0) << log_of("done");
  for (size_t i = 0; i < ends().size(); ++i) {
    const End& end = ends()[i];
    const std::string output = "end" + std::to_string(i);
    const Exit exit = run(end.command, output);
    EXPECT_EQ(exit.signal, 0) << end.command;
    EXPECT_EQ(exit.code, end.code) << end.command << "\n" << log_of(output);
    EXPECT_THAT(log_of(output), HasSubstr(end.text)) << end.command;
  }
}

// As root, a user who has no other processes.
TEST_F(EndsTest, NameTheLimitOfProcesses) {
  const bool is_root = ::getuid() == 0;
  const std::string user =
      is_root ? "setpriv --reuid 64329 --regid 64329 --clear-groups " : std::string();
  if (run(user + "stokerd --version", "user").code != 0)
    GTEST_SKIP() << "another user cannot start the programs";
  if (is_root) std::filesystem::permissions(folder_, std::filesystem::perms(01777));
  int refused = 0;
  for (const int limit : {2, 5, 8, 11, 14, 20, 24}) {
    const std::string output = "limit" + std::to_string(limit);
    // The processes of a user who is not root are those of the whole machine.
    const std::string most = is_root ? std::to_string(limit)
                                     : "$(( $(ps -L -u $(id -u) --no-headers | wc -l) + " +
                                           std::to_string(limit) + " ))";
    const Exit exit =
        run(user + "prlimit --nproc=" + most +
                " stokerd --config c.yaml --set train.num_threads=8 --run-dir " + output,
            output);
    EXPECT_EQ(exit.signal, 0) << limit;
    if (exit.code == 0) continue;
    ++refused;
    EXPECT_EQ(exit.code, 75) << limit << "\n" << log_of(output);
    EXPECT_THAT(log_of(output), HasSubstr("(ulimit -u, LimitNPROC= of a service)")) << limit;
  }
  EXPECT_GE(refused, 2);
}

// A signal that comes after the last event does not change the code.
TEST_F(EndsTest, KeepTheirCodeAtALateSignal) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    const std::string run_name = "late" + std::to_string(number);
    Process stokerd(
        {program("stokerd"), "--config", path("c.yaml"), "--run-dir", path(run_name), "--set",
         // Keeps the process after `daemon exited`.
         "run.on_event_command=[{events: ['daemon exited'], command: [/bin/sleep, '2']}]"},
        path(run_name + ".out"));
    ASSERT_TRUE(wait_until(kPatience, [&] {
      return text_if_exists(path(run_name + ".out")).find("daemon exited") != std::string::npos;
    }));
    stokerd.signal(number);
    EXPECT_EQ(code_of(stokerd), 0) << number;
  }
}

}  // namespace
}  // namespace stoker::test

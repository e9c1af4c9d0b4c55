// digest(): two runs with the same one compute the same.
#include <map>

#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

const std::string kBase = "data: {train: {kind: text, path: a}, valid: {kind: text, path: b}}\n";

TEST(Digest, IsSha256InHex) {
  EXPECT_THAT(digest(good(kBase)), testing::MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(digest(good(kBase)), digest(good(kBase)));
}

TEST(Digest, DoesNotDependOnWhatTheResultDoesNot) {
  const std::string base = digest(good(kBase));
  for (const char* const flag : {"run.dir=elsewhere",
                                 "run.deterministic=true",
                                 "data.train.path=moved",
                                 "data.valid.path=moved",
                                 "data.valid.split=[0, 0.5]",
                                 "data.valid.context=16",
                                 "feed.readers=7",
                                 "feed.processes=2",
                                 "feed.isolation=thread",
                                 "feed.slots=3",
                                 "feed.read_ahead=16",
                                 "feed.read_ahead_mib=3",
                                 "feed.on_bad_sample=stop",
                                 "feed.bad_sample_limit=0",
                                 "model.init_from=w.safetensors",
                                 "train.device=cpu",
                                 "train.threads=3",
                                 "checkpoint.every_steps=3",
                                 "checkpoint.every_seconds=3",
                                 "checkpoint.keep_last=9",
                                 "checkpoint.keep_every_steps=2",
                                 "checkpoint.keep_best=0",
                                 "checkpoint.on_failure=stop",
                                 "eval.sets=[]",
                                 "eval.policy=all",
                                 "eval.batch=3",
                                 "eval.threads=3",
                                 "eval.max_samples=3",
                                 "eval.timeout_seconds=3",
                                 "eval.tries=1",
                                 "metrics.every_steps=3",
                                 "metrics.tensorboard=false",
                                 "control.socket=off",
                                 "control.operators=[a]",
                                 "log.level=debug",
                                 "data.more={path: x}"}) {
    EXPECT_EQ(digest(good(kBase, {flag})), base) << flag;
  }
}

TEST(Digest, DependsOnEachSettingThatDecides) {
  std::map<std::string, std::string> flag_of{{digest(good(kBase)), "none"}};
  for (const char* const flag : {"run.seed=2",
                                 "data.train.kind=tokens",
                                 "data.train.glob=a",
                                 "data.train.split=[0, 0.5]",
                                 "data.train.context=16",
                                 "feed.shuffle=off",
                                 "feed.shuffle=window",
                                 "feed.shuffle=shards",
                                 "feed.last_batch=drop",
                                 "data.train.skip=1",
                                 "data.train.take=1",
                                 "data.train.repeat=2",
                                 "data.train.weights_file=w.txt",
                                 "data.train={kind: mixture, of: [valid]}",
                                 "model.layers=2",
                                 "model.width=6",
                                 "model.heads=2",
                                 "model.context=256",
                                 "model.vocab=300",
                                 "model.dropout=0.1",
                                 "model.freeze=[tok.weight]",
                                 "optimizer.kind=adam",
                                 "optimizer.kind=sgd",
                                 "optimizer.kind=momentum",
                                 "optimizer.lr=1",
                                 "optimizer.betas=[0.1, 0.2]",
                                 "optimizer.eps=0.1",
                                 "optimizer.weight_decay=1",
                                 "optimizer.clip_norm=2",
                                 "optimizer.clip_value=2",
                                 "schedule.kind=linear",
                                 "schedule.kind=constant",
                                 "schedule.kind=step",
                                 "schedule.warmup_steps=1",
                                 "schedule.min_lr=1",
                                 "train.steps=3",
                                 "train.batch=3",
                                 "train.precision=bf16",
                                 "train.precision=fp16",
                                 "train.precision=tf32",
                                 "train.channels_last=true",
                                 "train.flush_denormals=true",
                                 "train.ema=0.5",
                                 "train.accumulate=3"}) {
    Flags flags{flag};
    if (std::string_view(flag) == "data.train.kind=tokens") flags.push_back("data.valid=");
    const auto [other, is_new] = flag_of.emplace(digest(good(kBase, flags)), flag);
    EXPECT_TRUE(is_new) << flag << " gives the digest of " << other->second;
  }
}

TEST(Digest, DoesNotDependOnHowTheTextIsWritten) {
  EXPECT_EQ(digest(good("data:\n  train:\n    path: a\n    kind: text # here\ntrain: {}\n")),
            digest(good("data: {train: {kind: text, path: a}}\n")));
}

// A digest is written into every checkpoint: what it covers may grow, but a change here makes those of
// older versions look like other runs.
TEST(Digest, StaysWhatItWas) {
  EXPECT_EQ(digest(good(kBase)),
            "385ef15330e5fb8423ae4f83f2f8c88f836e5f0e2dfd2d6b7c0e99f03cfd5e56");
}

}  // namespace
}  // namespace stoker::config::test

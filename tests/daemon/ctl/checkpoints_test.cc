#include <array>

#include <boost/json.hpp>

#include "shared/base/sha256.h"
#include "shared/checkpoint/store.h"
#include "tests/daemon/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Checkpoints : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    std::filesystem::create_directories(layout().checkpoints());
  }
  // Returns the SHA-256 of its manifest.
  std::string put_checkpoint(uint64_t step) {
    const std::array<float, 4> values{1, 2, 3, static_cast<float>(step)};
    const checkpoint::TensorViews tensors{
        {.spec = {.name = "weight", .dtype = DType::kF32, .shape = {4}},
         .bytes = std::as_bytes(std::span(values))}};
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    content.manifest.live = "{}";
    content.model = content.optim = content.state = tensors;
    checkpoint::CheckpointStore store(layout().checkpoints(), real_files());
    const auto committed = store.commit(content);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    return sha256_hex(*read_file(file(step, "manifest.json"), 1 << 20));
  }
  std::string file(uint64_t step, const std::string& name) const {
    return layout().checkpoints() + "/" + checkpoint::CheckpointStore::name_of(step) + "/" + name;
  }
  void put_best(uint64_t step, double value, const std::string& sha256) {
    put(layout().best_file(), run::to_json(run::Best{.set = "valid",
                                                     .metric = "loss",
                                                     .value = value,
                                                     .step = step,
                                                     .manifest_sha256 = sha256}));
  }
  static void flip_a_bit(const std::string& path) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-3, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(-3, std::ios::end);
    stream.put(byte);
  }
};

TEST_F(Checkpoints, ListShowsEachWithItsValidationAndMarksTheBest) {
  put_eval(200, 1.25, put_checkpoint(200));
  const std::string best = put_checkpoint(400);
  put_eval(400, 1.125, best);
  put_checkpoint(600);
  put_best(400, 1.125, best);
  const Answer answer = ctl({"list"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, ContainsRegex(" 200  2[0-9-]* [0-9:]*  .* B +1\\.2500\n"));
  EXPECT_THAT(answer.out, ContainsRegex(" 400 .* 1\\.1250  \\* best\n"));
  EXPECT_THAT(answer.out, ContainsRegex(" 600 .* -  newest\n"));
  EXPECT_THAT(answer.out, HasSubstr("best valid loss 1.1250 at step 400\n"));
  EXPECT_LE(widest_line(answer.out), 80u);
}

TEST_F(Checkpoints, AnEvaluationOfAnotherCheckpointOfTheSameStepDoesNotCount) {
  put_checkpoint(200);
  put_eval(200, 1.25, std::string(64, 'a'));
  put_best(200, 1.25, std::string(64, 'a'));
  const Answer answer = ctl({"list"});
  EXPECT_THAT(answer.out, ContainsRegex(" 200 .* -  newest\n")) << answer.out;
  EXPECT_THAT(answer.out, HasSubstr("that checkpoint is no longer kept"));
}

TEST_F(Checkpoints, ListShowsDamageAndGoesOn) {
  put_checkpoint(200);
  put_checkpoint(400);
  put(file(200, "manifest.json"), "{\"step\":");
  const Answer answer = ctl({"list"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, ContainsRegex(" 200 .*DAMAGED: .*manifest.json"));
  EXPECT_THAT(answer.out, ContainsRegex(" 400 .* newest\n"));
}

TEST_F(Checkpoints, ListInJsonIsComplete) {
  const std::string sha256 = put_checkpoint(200);
  put_eval(200, 1.25, sha256);
  put_best(200, 1.25, sha256);
  put_checkpoint(400);
  const Answer answer = ctl({"--json", "list"});
  const auto root = boost::json::parse(answer.out);
  EXPECT_EQ(root.at("metric").as_string(), "loss");
  EXPECT_EQ(root.at("best").at("step").to_number<int>(), 200);
  const auto& list = root.at("checkpoints").as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("valid").to_number<double>(), 1.25);
  EXPECT_TRUE(list[0].at("best").as_bool());
  EXPECT_GT(list[0].at("bytes").to_number<uint64_t>(), 0u);
  EXPECT_TRUE(list[1].at("valid").is_null());
}

TEST_F(Checkpoints, NoneYetIsNoError) {
  EXPECT_EQ(ctl({"list"}).code, 0);
  EXPECT_THAT(ctl({"list"}).out, HasSubstr("no checkpoint"));
  const Answer verify = ctl({"verify"});
  EXPECT_EQ(verify.code, 78);
  EXPECT_THAT(verify.err, HasSubstr("no checkpoint yet"));
}

TEST_F(Checkpoints, VerifyFindsEveryByteAsItWas) {
  put_checkpoint(200);
  put_checkpoint(400);
  const Answer newest = ctl({"verify"});
  EXPECT_EQ(newest.code, 0) << newest.err;
  EXPECT_THAT(newest.out, HasSubstr("step 400: as it was saved (3 files and the manifest, "));
  EXPECT_THAT(ctl({"verify", "200"}).out, HasSubstr("step 200: as it was saved"));
  const Answer all = ctl({"verify", "--all"});
  EXPECT_THAT(all.out, HasSubstr("step 200: as"));
  EXPECT_THAT(all.out, HasSubstr("step 400: as"));
}

TEST_F(Checkpoints, VerifyNamesTheFileOfOneFlippedBit) {
  put_checkpoint(200);
  put_checkpoint(400);
  for (const char* name :
       {"model.safetensors", "optim.safetensors", "state.safetensors", "manifest.json"}) {
    flip_a_bit(file(200, name));
    const Answer answer = ctl({"verify", "200"});
    EXPECT_EQ(answer.code, 65);
    EXPECT_THAT(answer.out, HasSubstr(name));
    flip_a_bit(file(200, name));
  }
  EXPECT_EQ(ctl({"verify", "200"}).code, 0);
  std::filesystem::remove(file(200, "optim.safetensors"));
  const Answer all = ctl({"verify", "--all"});
  EXPECT_EQ(all.code, 65);
  EXPECT_THAT(all.out, HasSubstr("optim.safetensors: missing"));
  EXPECT_THAT(all.out, HasSubstr("step 400: as it was saved"));
  EXPECT_EQ(ctl({"verify"}).code, 0) << "the newest is whole";
}

TEST_F(Checkpoints, VerifyInJsonSaysTheSame) {
  put_checkpoint(200);
  EXPECT_TRUE(boost::json::parse(ctl({"--json", "verify"}).out).at("ok").as_bool());
  flip_a_bit(file(200, "model.safetensors"));
  const Answer answer = ctl({"--json", "verify"});
  EXPECT_EQ(answer.code, 65);
  const auto root = boost::json::parse(answer.out);
  EXPECT_FALSE(root.at("ok").as_bool());
  EXPECT_NE(root.at("checkpoints").at(0).at("error").as_string().find("model.safetensors"),
            std::string::npos);
}

TEST_F(Checkpoints, VerifyOfAStepThatIsNotThereNamesThoseThatAre) {
  put_checkpoint(200);
  put_checkpoint(400);
  const Answer answer = ctl({"verify", "300"});
  EXPECT_EQ(answer.code, 78);
  EXPECT_THAT(answer.err, HasSubstr("no checkpoint of step 300; there are: 200 400"));
  EXPECT_THAT(answer.out, Not(HasSubstr("300")));
}

}  // namespace
}  // namespace stoker::ctl

// Hugging Face folders: which files have the tensors, corrupt and hostile indexes, names.
#include "shared/checkpoint/huggingface.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/safetensors.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

const std::string kFirst = "model-00001-of-00002.safetensors",
                  kSecond = "model-00002-of-00002.safetensors";

class HuggingFaceFolderTest : public testing::Test {
 protected:
  void write_shard(const std::string& file, const std::vector<OwnedTensor>& tensors) {
    std::filesystem::remove(scratch_ / file);
    ASSERT_TRUE(
        write_safetensors(default_file_system(), scratch_.path(), file, views_of(tensors), {})
            .ok());
  }
  void write_torch(const std::string& file, const OwnedTensor& tensor) {
    write_shard("source", {tensor});
    const auto source = SafetensorsFile::open(scratch_ / "source");
    ASSERT_TRUE(source.ok()) << source.status().to_string();
    auto out = NewFile::create(default_file_system(), scratch_ / file);
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    ASSERT_TRUE(export_torch(std::vector<ExportPart>{{"model", source->get()}}, 1, *out, {}).ok());
    ASSERT_TRUE(out->commit().ok());
  }
  void write_index(const std::string& weight_map) {
    test::write_whole(scratch_ / "model.safetensors.index.json",
                      R"({"metadata": {"total_size": 8}, "weight_map": )" + weight_map + "}");
  }
  // Tensors a and b in one file, c in another.
  void write_folder() {
    write_shard(kFirst,
                {make_tensor("a", DType::kF32, {2, 3}, 1), make_tensor("b", DType::kBF16, {4}, 2)});
    write_shard(kSecond, {make_tensor("c", DType::kF16, {5}, 3)});
    write_index(R"({"a": ")" + kFirst + R"(", "b": ")" + kFirst + R"(", "c": ")" + kSecond +
                R"("})");
  }
  std::string error() { return open_huggingface_folder(scratch_.path()).status().message(); }

  test::TemporaryDirectory scratch_;
};

TEST_F(HuggingFaceFolderTest, ReadsTensorsOfAllShards) {
  write_folder();
  const auto folder = open_huggingface_folder(scratch_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  std::vector<std::string> specs;
  for (const TensorSpec& spec : (*folder)->tensors()) specs.push_back(to_string(spec));
  EXPECT_THAT(specs, ElementsAre("a F32 [2, 3]", "b BF16 [4]", "c F16 [5]"));
  std::vector<std::byte> bytes(10);
  ASSERT_TRUE((*folder)->read("c", bytes).ok());
  EXPECT_EQ(bytes, make_tensor("c", DType::kF16, {5}, 3).bytes);
  EXPECT_EQ((*folder)->read("d", bytes).code(), StatusCode::kNotFound);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In bytes, since the last reset; 0: the kernel does not tell.
uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  uint64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> kib;
  return kib << 10;
}

// 4 GiB in two shards, of which only the headers take space on the disk. Each tensor is read by its
// range, into memory that is given back before the next.
TEST_F(HuggingFaceFolderTest, NeedsMemoryForTheLargestTensorOnly) {
  constexpr uint64_t kTensors = 8, kTensorBytes = uint64_t{32} << 20;
  std::string weight_map = "{";
  for (const std::string& file : {kFirst, kSecond}) {
    TensorHeader header;
    for (uint64_t i = 0; i < kTensors; ++i) {
      const std::string name = file.substr(0, 11) + std::to_string(i);
      header.tensors.push_back({{name, DType::kF32, {static_cast<int64_t>(kTensorBytes / 4)}},
                                i * kTensorBytes,
                                (i + 1) * kTensorBytes});
      weight_map += (weight_map.size() > 1 ? ", \"" : "\"") + name + "\": \"" + file + '"';
    }
    const std::string start = format_tensor_header(header);
    test::write_whole(scratch_ / file, start);
    std::filesystem::resize_file(scratch_ / file, start.size() + kTensors * kTensorBytes);
  }
  write_index(weight_map + "}");
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const uint64_t before = peak_memory();
  if (before == 0) GTEST_SKIP() << "no VmHWM in /proc/self/status";
  const auto folder = open_huggingface_folder(scratch_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  ASSERT_EQ((*folder)->tensors().size(), 2 * kTensors);
  for (const TensorSpec& spec : (*folder)->tensors()) {
    std::vector<std::byte> bytes(spec.bytes(), std::byte{1});
    ASSERT_TRUE((*folder)->read(spec.name, bytes).ok());
    EXPECT_EQ(bytes.back(), std::byte{0}) << spec.name;
  }
  EXPECT_LT(peak_memory() - before, kTensorBytes * 6 / 5);
}
#endif

TEST_F(HuggingFaceFolderTest, ReadsASingleFile) {
  write_shard("model.safetensors", {make_tensor("a", DType::kF32, {2})});
  const auto folder = open_huggingface_folder(scratch_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  EXPECT_NE((*folder)->find("a"), nullptr);
}

TEST_F(HuggingFaceFolderTest, ReadsAFileOfTorchSave) {
  write_torch("pytorch_model.bin", make_tensor("a", DType::kF32, {2, 3}, 1));
  const auto folder = open_huggingface_folder(scratch_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  std::vector<std::byte> bytes(24);
  ASSERT_TRUE((*folder)->read("a", bytes).ok());
  EXPECT_EQ(bytes, make_tensor("a", DType::kF32, {2, 3}, 1).bytes);
}

// Written by PyTorch (golden/make_torch_shards.py) as by transformers' save_pretrained(safe_serialization=False, max_shard_size=…):
// a is arange(6).view(3, 2).t() / 4, b arange(5) - 2, and c, in bf16, [1.5, -2].
TEST_F(HuggingFaceFolderTest, ReadsShardsOfTorchSave) {
  std::filesystem::copy(STOKER_CHECKPOINT_GOLDEN "/torch_shards", scratch_.path());
  const auto folder = open_huggingface_folder(scratch_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  std::vector<std::string> specs;
  for (const TensorSpec& spec : (*folder)->tensors()) specs.push_back(to_string(spec));
  EXPECT_THAT(specs, UnorderedElementsAre("a F32 [2, 3]", "b F32 [5]", "c BF16 [2]"));
  std::vector<float> a(6), b(5);
  std::vector<uint16_t> c(2);
  ASSERT_TRUE((*folder)->read("a", std::as_writable_bytes(std::span(a))).ok());
  ASSERT_TRUE((*folder)->read("b", std::as_writable_bytes(std::span(b))).ok());
  ASSERT_TRUE((*folder)->read("c", std::as_writable_bytes(std::span(c))).ok());
  EXPECT_THAT(a, ElementsAre(0, 0.5F, 1, 0.25F, 0.75F, 1.25F));
  EXPECT_THAT(b, ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_THAT(c, ElementsAre(0x3fc0, 0xc000));
}

TEST_F(HuggingFaceFolderTest, RejectsShardsOfTorchSaveThatDoNotFitTheIndex) {
  std::filesystem::copy(STOKER_CHECKPOINT_GOLDEN "/torch_shards", scratch_.path());
  const auto write_torch_index = [&](const std::string& second) {
    test::write_whole(scratch_ / "pytorch_model.bin.index.json",
                      R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "c": )"
                      R"("pytorch_model-00001-of-00002.bin", "b": ")" +
                          second + R"("}})");
  };
  write_torch_index("../pytorch_model-00002-of-00002.bin");
  EXPECT_THAT(error(), HasSubstr("which is not a .bin file of this folder"));
  write_torch_index("pytorch_model-00001-of-00002.bin");
  EXPECT_THAT(error(), HasSubstr("pytorch_model-00002-of-00002.bin: is not in pytorch_model.bin."));
  write_torch_index("pytorch_model-00002-of-00002.bin");
  write_torch("pytorch_model.bin", make_tensor("a", DType::kF32, {2, 3}, 1));
  EXPECT_THAT(error(), HasSubstr("has pytorch_model.bin and pytorch_model.bin.index.json"));
  // transformers prefers the other format, too.
  write_shard("model.safetensors", {make_tensor("c", DType::kF32, {2})});
  const auto preferred = open_huggingface_folder(scratch_.path());
  ASSERT_TRUE(preferred.ok()) << preferred.status().to_string();
  EXPECT_NE((*preferred)->find("c"), nullptr);
}

TEST_F(HuggingFaceFolderTest, ExecutesNoPickle) {
  test::write_whole(scratch_ / "pytorch_model.bin", "cposix\nsystem\n(S'touch executed'\ntR.");
  EXPECT_THAT(error(), HasSubstr("pytorch_model.bin: "));
  EXPECT_FALSE(std::filesystem::exists("executed"));
}

TEST_F(HuggingFaceFolderTest, NeedsAFileWithTensors) {
  EXPECT_THAT(error(), HasSubstr("has none of model.safetensors, model.safetensors.index.json, "
                                 "pytorch_model.bin, pytorch_model.bin.index.json"));
}

TEST_F(HuggingFaceFolderTest, RejectsTwoSources) {
  write_folder();
  write_shard("model.safetensors", {make_tensor("a", DType::kF32, {2})});
  EXPECT_THAT(error(), HasSubstr("has model.safetensors and model.safetensors.index.json"));
}

TEST_F(HuggingFaceFolderTest, NamesAMissingShard) {
  write_folder();
  std::filesystem::remove(scratch_ / kSecond);
  EXPECT_THAT(error(), AllOf(HasSubstr(kSecond + ": does not exist"), HasSubstr("download it")));
}

TEST_F(HuggingFaceFolderTest, NamesAShardThatIsNotInTheIndex) {
  write_folder();
  write_shard("model-00003-of-00003.safetensors", {make_tensor("d", DType::kF32, {2})});
  EXPECT_THAT(error(), HasSubstr("model-00003-of-00003.safetensors: is not in model.safetensors"));
}

TEST_F(HuggingFaceFolderTest, RejectsFilesOutsideOfTheFolder) {
  for (const char* const file :
       {"../other.safetensors", "/etc/model.safetensors", "sub/a.safetensors", "..", "",
        ".hidden.safetensors", "config.json", "a.safetensors\\u0000.safetensors"}) {
    write_index(R"({"a": ")" + std::string(file) + R"("})");
    EXPECT_THAT(error(), HasSubstr("which is not a .safetensors file of this folder")) << file;
  }
}

TEST_F(HuggingFaceFolderTest, RejectsAnIndexThatDiffersFromTheShards) {
  write_folder();
  write_index(R"({"a": ")" + kFirst + R"(", "c": ")" + kSecond + R"("})");
  EXPECT_THAT(error(), HasSubstr("tensor 'b' is not in model.safetensors.index.json"));
  write_index(R"({"a": ")" + kFirst + R"(", "b": ")" + kSecond + R"(", "c": ")" + kSecond +
              R"("})");
  EXPECT_THAT(error(), HasSubstr("tensor 'b' is in " + kSecond + " according to"));
  write_index(R"({"a": ")" + kFirst + R"(", "b": ")" + kFirst + R"(", "c": ")" + kSecond +
              R"(", "d": ")" + kSecond + R"("})");
  EXPECT_THAT(error(), HasSubstr("tensor 'd' is not in " + kSecond));
}

TEST_F(HuggingFaceFolderTest, RejectsATensorInTwoShards) {
  write_folder();
  write_shard(kSecond, {make_tensor("a", DType::kF32, {2, 3}), make_tensor("c", DType::kF16, {5})});
  EXPECT_THAT(error(), HasSubstr(kSecond + ": tensor 'a' is in " + kFirst + " according to"));
}

TEST_F(HuggingFaceFolderTest, RejectsAnInvalidIndex) {
  for (const char* const index : {"[]", R"({"a": 1})", "null", "{"}) {
    write_index(index);
    EXPECT_THAT(error(), HasSubstr("model.safetensors.index.json: ")) << index;
  }
  write_index("{}");
  EXPECT_THAT(error(), HasSubstr("weight_map is empty"));
}

TEST(HuggingFaceNamesTest, MapsBothWays) {
  const auto* const bert = HuggingFaceNames::find("bert");
  const auto* const gpt2 = HuggingFaceNames::find("gpt2");
  const auto* const llama = HuggingFaceNames::find("llama");
  struct Pair {
    const HuggingFaceNames* names;
    std::string ours, theirs;
    bool is_transposed;
  };
  for (const auto& [names, ours, theirs, is_transposed] : std::vector<Pair>{
           {gpt2, "tok.weight", "transformer.wte.weight", false},
           {gpt2, "blocks.11.qkv.weight", "transformer.h.11.attn.c_attn.weight", true},
           {gpt2, "blocks.11.qkv.bias", "transformer.h.11.attn.c_attn.bias", false},
           {gpt2, "blocks.0.down.weight", "transformer.h.0.mlp.c_proj.weight", true},
           {gpt2, "head.weight", "lm_head.weight", false},
           {bert, "tok.weight", "bert.embeddings.word_embeddings.weight", false},
           {bert, "type.weight", "bert.embeddings.token_type_embeddings.weight", false},
           {bert, "embed_ln.bias", "bert.embeddings.LayerNorm.bias", false},
           {bert, "blocks.3.k.bias", "bert.encoder.layer.3.attention.self.key.bias", false},
           {bert, "blocks.3.proj.weight", "bert.encoder.layer.3.attention.output.dense.weight",
            false},
           {bert, "blocks.3.ln1.bias", "bert.encoder.layer.3.attention.output.LayerNorm.bias",
            false},
           {bert, "blocks.3.down.weight", "bert.encoder.layer.3.output.dense.weight", false},
           {bert, "blocks.3.ln2.weight", "bert.encoder.layer.3.output.LayerNorm.weight", false},
           {bert, "pooler.weight", "bert.pooler.dense.weight", false},
           {bert, "fc.weight", "classifier.weight", false},
           {llama, "blocks.3.proj.weight", "model.layers.3.self_attn.o_proj.weight", false},
           {llama, "blocks.3.q_norm.weight", "model.layers.3.self_attn.q_norm.weight", false},
           {llama, "ln.weight", "model.norm.weight", false}}) {
    const auto from = names->from_stoker(ours), to = names->to_stoker(theirs);
    ASSERT_TRUE(from && to) << ours;
    EXPECT_EQ(from->name, theirs);
    EXPECT_EQ(to->name, ours);
    EXPECT_EQ(from->is_transposed, is_transposed) << ours;
    EXPECT_EQ(to->is_transposed, is_transposed) << ours;
  }
}

// As in the files of google-bert.
TEST(HuggingFaceNamesTest, AcceptsTheNormsOfTheFirstBerts) {
  const auto* const bert = HuggingFaceNames::find("bert");
  EXPECT_EQ(bert->to_stoker("bert.embeddings.LayerNorm.gamma")->name, "embed_ln.weight");
  EXPECT_EQ(bert->to_stoker("bert.encoder.layer.11.attention.output.LayerNorm.beta")->name,
            "blocks.11.ln1.bias");
  EXPECT_EQ(bert->to_stoker("encoder.layer.0.output.LayerNorm.gamma")->name, "blocks.0.ln2.weight");
  EXPECT_TRUE(bert->is_ignored("cls.predictions.transform.LayerNorm.gamma"));
  EXPECT_FALSE(bert->to_stoker("bert.pooler.dense.gamma"));
  EXPECT_FALSE(HuggingFaceNames::find("gpt2")->to_stoker("h.0.LayerNorm.gamma"));
}

TEST(HuggingFaceNamesTest, AcceptsTheModelWithoutHeadAndIgnoresItsBuffers) {
  const auto* const gpt2 = HuggingFaceNames::find("gpt2");
  EXPECT_EQ(gpt2->to_stoker("h.0.ln_1.bias")->name, "blocks.0.ln1.bias");
  const auto* const bert = HuggingFaceNames::find("bert");
  EXPECT_EQ(bert->to_stoker("encoder.layer.0.output.dense.bias")->name, "blocks.0.down.bias");
  EXPECT_EQ(bert->to_stoker("classifier.bias")->name, "fc.bias");
  EXPECT_TRUE(bert->is_ignored("embeddings.position_ids"));
  EXPECT_TRUE(bert->is_ignored("cls.predictions.transform.dense.weight"));
  EXPECT_FALSE(bert->is_ignored("classifier.weight"));
  EXPECT_TRUE(gpt2->is_ignored("h.0.attn.bias"));
  EXPECT_TRUE(gpt2->is_ignored("transformer.h.0.attn.masked_bias"));
  EXPECT_FALSE(gpt2->is_ignored("h.0.attn.c_attn.bias"));
  EXPECT_FALSE(gpt2->to_stoker("score.weight"));
  EXPECT_FALSE(gpt2->to_stoker("h"));
  EXPECT_TRUE(
      HuggingFaceNames::find("llama")->is_ignored("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_EQ(HuggingFaceNames::find("gpt"), nullptr);
}

std::optional<HuggingFaceNames::Name> to_gpt2(std::string_view name) {
  return HuggingFaceNames::find("gpt2")->from_stoker(name);
}

TEST_F(HuggingFaceFolderTest, IsExportedWithItsNamesAndTransposedWeights) {
  OwnedTensor weight = make_tensor("blocks.0.qkv.weight", DType::kF32, {6, 2});
  write_shard("ours.safetensors", {weight, make_tensor("blocks.0.qkv.bias", DType::kF32, {6})});
  const auto ours = SafetensorsFile::open(scratch_ / "ours.safetensors");
  const std::vector<ExportPart> parts{{.name = "model", .file = ours->get(), .rename = to_gpt2}};
  auto out = NewFile::create(default_file_system(), scratch_ / "model.safetensors");
  ASSERT_TRUE(export_safetensors(parts, {}, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  const auto theirs = SafetensorsFile::open(scratch_ / "model.safetensors");
  ASSERT_TRUE(theirs.ok()) << theirs.status().to_string();
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  EXPECT_EQ(to_string(*(*theirs)->find(name)), name + " F32 [2, 6]");
  std::vector<float> before(12), after(12);
  ASSERT_TRUE((*ours)->read(weight.spec.name, std::as_writable_bytes(std::span(before))).ok());
  ASSERT_TRUE((*theirs)->read(name, std::as_writable_bytes(std::span(after))).ok());
  for (size_t row = 0; row < 6; ++row)
    for (size_t column = 0; column < 2; ++column)
      EXPECT_EQ(std::memcmp(&before[row * 2 + column], &after[column * 6 + row], 4), 0);
}

TEST_F(HuggingFaceFolderTest, IsNotExportedWithUnknownNames) {
  write_shard("ours.safetensors", {make_tensor("fc.weight", DType::kF32, {6})});
  const auto ours = SafetensorsFile::open(scratch_ / "ours.safetensors");
  const std::vector<ExportPart> parts{{.name = "model", .file = ours->get(), .rename = to_gpt2}};
  auto out = NewFile::create(default_file_system(), scratch_ / "model.safetensors");
  EXPECT_THAT(export_safetensors(parts, {}, *out, {}).message(),
              HasSubstr("tensor 'fc.weight' has no name in this format"));
}

}  // namespace
}  // namespace stoker::checkpoint

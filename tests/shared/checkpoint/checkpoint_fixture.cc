#include "tests/shared/checkpoint/checkpoint_fixture.h"

#include <cstring>
#include <random>
#include <utility>

#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {

std::string raw_tensors_of_length(uint64_t length, const std::string& rest) {
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + rest;
}

std::string raw_tensors(const std::string& header, const std::string& data) {
  return raw_tensors_of_length(header.size(), header + data);
}

OwnedTensor make_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                        unsigned seed) {
  OwnedTensor tensor{{name, dtype, shape}, {}};
  std::mt19937 random(seed);
  tensor.bytes.resize(tensor.spec.bytes());
  // Only byte values that Python reads back unchanged: a bool is 0 or 1, and no float is NaN or
  // infinite.
  for (std::byte& byte : tensor.bytes)
    byte = static_cast<std::byte>(random() % (dtype == DType::kBool ? 2 : 0x3c));
  return tensor;
}

std::vector<OwnedTensor> one_of_each_dtype() {
  std::vector<OwnedTensor> tensors;
  for (const char* name :
       {"U8", "U16", "I32", "I64", "F16", "BF16", "F32", "F64", "BOOL", "I8", "I16"})
    tensors.push_back(
        make_tensor(name, *parse_dtype(name), {3, 5}, static_cast<unsigned>(tensors.size()) + 1));
  tensors.push_back(make_tensor("scalar", DType::kF32, {}));
  tensors.push_back(make_tensor("empty", DType::kF32, {0, 4}));
  return tensors;
}

TensorViews views_of(const std::vector<OwnedTensor>& tensors) {
  TensorViews views;
  for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

Result<WrittenFile> write_safetensors(FileSystem& files, const std::string& directory,
                                      const std::string& name, const TensorViews& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  auto layout = make_safetensors_layout(name, tensors, metadata);
  if (!layout.ok()) return layout.status().with_context(directory);
  STOKER_ASSIGN_OR_RETURN(auto written,
                          write_hashed_files(files, directory, {&layout->content, 1}));
  return std::move(written.front());
}

TrainerState::TrainerState(uint64_t step) {
  const auto seed = static_cast<unsigned>(step);
  manifest.step = step;
  manifest.epoch = step / 10;
  manifest.next_ticket = step * 4;
  manifest.torch_version = "2.11.0";
  manifest.model_digest = "m";
  manifest.config_digest = "c";
  manifest.data_digest = "d";
  manifest.parent_checkpoint = step == 0 ? "" : CheckpointStore::checkpoint_name(step - 1);
  manifest.metrics_bytes = step * 100;
  manifest.live_settings = R"({"lr":1E-4})";
  model = {make_tensor("fc.weight", DType::kF32, {8, 4}, seed),
           make_tensor("fc.bias", DType::kF32, {8}, seed + 1)};
  optim = {make_tensor("fc.weight.exp_avg", DType::kF32, {8, 4}, seed + 2),
           make_tensor("step", DType::kI64, {}, seed + 3)};
  state = {make_tensor("rng", DType::kU8, {40}, seed + 4)};
}

CheckpointContent TrainerState::content() const {
  return {manifest, views_of(model), views_of(optim), views_of(state)};
}

std::vector<uint64_t> steps_of(const CheckpointStore& store) {
  const auto entries = store.list();
  EXPECT_TRUE(entries.ok()) << entries.status().to_string();
  std::vector<uint64_t> steps;
  if (entries.ok())
    for (const CheckpointEntry& entry : *entries) steps.push_back(entry.step);
  return steps;
}

std::vector<std::string> names_in(const std::string& directory) {
  const auto names = list_directory(directory);
  return names.ok() ? *names : std::vector<std::string>{};
}

std::vector<std::string> files_in(const std::string& checkpoint) {
  std::vector<std::string> paths;
  for (const std::string& name : names_in(checkpoint)) paths.push_back(join_path(checkpoint, name));
  return paths;
}

namespace {

::testing::AssertionResult holds(const VerifiedCheckpoint& checkpoint, const std::string& name,
                                 const std::vector<OwnedTensor>& tensors) {
  const auto file = checkpoint.open_tensors(name);
  if (!file.ok()) return ::testing::AssertionFailure() << file.status().to_string();
  if ((*file)->tensors().size() != tensors.size())
    return ::testing::AssertionFailure() << name << " has more or fewer tensors";
  for (const OwnedTensor& tensor : tensors) {
    std::vector<std::byte> bytes(tensor.bytes.size());
    const Status status = (*file)->read(tensor.spec.name, bytes);
    if (!status.ok()) return ::testing::AssertionFailure() << status.to_string();
    if (bytes != tensor.bytes || *(*file)->find(tensor.spec.name) != tensor.spec)
      return ::testing::AssertionFailure() << name << " differs at " << tensor.spec.name;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult is_complete(const std::string& checkpoint, uint64_t step) {
  const auto opened = CheckpointStore::open_verified(checkpoint);
  if (!opened.ok()) return ::testing::AssertionFailure() << opened.status().to_string();
  const TrainerState due(step);
  Manifest manifest = opened->manifest();
  if (manifest.files.size() != 3) return ::testing::AssertionFailure() << "files missing";
  manifest.files = due.manifest.files;
  manifest.created_at = due.manifest.created_at;
  manifest.stoker_version = due.manifest.stoker_version;
  if (manifest != due.manifest)
    return ::testing::AssertionFailure() << "another manifest: " << to_json(manifest);
  for (const auto& [name, tensors] :
       {std::pair("model.safetensors", &due.model), std::pair("optimizer.safetensors", &due.optim),
        std::pair("trainer_state.safetensors", &due.state)}) {
    if (const auto same = holds(*opened, name, *tensors); !same) return same;
  }
  return ::testing::AssertionSuccess();
}

std::string StoreFixture::commit(uint64_t step) {
  const auto written = store_.commit(TrainerState(step).content());
  EXPECT_TRUE(written.ok()) << written.status().to_string();
  return path_of(step);
}

std::string StoreFixture::path_of(uint64_t step) const {
  return join_path(directory_, CheckpointStore::checkpoint_name(step));
}

}  // namespace stoker::checkpoint

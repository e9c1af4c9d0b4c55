// parity_export DIR: trains every case and commits a checkpoint of each to DIR/<case>, for PyTorch
// to load (check_parity.py).
// parity_export --names: prints the tensors of every model for which torchvision publishes weights
// (check_torchvision.py).
#include <cstdio>
#include <string_view>

#include "shared/checkpoint/store.h"
#include "shared/model/torch_dtype.h"
#include "tests/parity/parity_run.h"

namespace {

using namespace stoker;

checkpoint::TensorViews views_of(const model::NamedTensors& tensors) {
  checkpoint::TensorViews artifacts;
  for (const auto& [name, tensor] : tensors) {
    const auto* const bytes = static_cast<const std::byte*>(tensor.data_ptr());
    artifacts.push_back({model::to_tensor_spec(name, tensor), {bytes, tensor.nbytes()}});
  }
  return artifacts;
}

Status export_case(const parity::ParityCase& parity_case, const std::string& directory) {
  STOKER_ASSIGN_OR_RETURN(const auto golden,
                          checkpoint::SafetensorsFile::open(STOKER_PARITY_GOLDEN "/" +
                                                            parity_case.name + ".safetensors"));
  STOKER_ASSIGN_OR_RETURN(const parity::ParityRun run, parity::run_case(parity_case, *golden));
  const std::string path = join_path(directory, parity_case.name);
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), path));
  checkpoint::CheckpointContent content;
  content.manifest.step = run.losses.size();
  content.model = views_of(model::named_tensors(*run.model));
  content.optim = views_of(run.optimizer->state());
  const auto written = checkpoint::CheckpointStore(path, default_file_system()).commit(content);
  return written.ok() ? Status() : written.status();
}

Status print_names(const parity::ParityCase& parity_case) {
  STOKER_ASSIGN_OR_RETURN(const auto model, model::make_model(parity_case.model, parity_case.sample,
                                                              parity_case.classes));
  std::printf("model %s\n", parity_case.name.c_str());
  for (const auto& [name, tensor] : model::named_tensors(*model)) {
    std::string shape;
    for (const int64_t side : tensor.sizes())
      shape += (shape.empty() ? "" : ", ") + std::to_string(side);
    std::printf("%s [%s]\n", name.c_str(), shape.c_str());
  }
  return {};
}

int end_of(const Status& status, const std::string& name) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", name.c_str(), status.to_string().c_str());
  return 70;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: parity_export DIRECTORY | --names\n");
    return 64;
  }
  const bool names = std::string_view(argv[1]) == "--names";
  for (const auto& parity_case :
       names ? stoker::parity::published_cases() : stoker::parity::trained_cases()) {
    const int code = end_of(names ? print_names(parity_case) : export_case(parity_case, argv[1]),
                            parity_case.name);
    if (code != 0) return code;
  }
  return 0;
}

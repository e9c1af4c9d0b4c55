#include "evaluator/artifact.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "shared/checkpoint/store.h"

namespace stoker::evaluator {
namespace {

constexpr uint64_t kMaxArtifactBytes = 16 << 20;

struct Naming {
  ArtifactKind kind;
  std::string_view file;
  std::string_view tag;
};
constexpr std::array<Naming, 6> kNamings{
    {{ArtifactKind::kGeneratedText, "generated.txt", "generated_text"},
     {ArtifactKind::kMisclassifiedTable, "misclassified.md", "misclassified"},
     {ArtifactKind::kMisclassifiedImage, "misclassified.png", "misclassified_image"},
     {ArtifactKind::kConfusionMatrixImage, "confusion_matrix.png", "confusion_matrix"},
     {ArtifactKind::kCaptionsTable, "captions.md", "captions"},
     {ArtifactKind::kCaptionsImage, "captions.png", "captions_image"}}};

const Naming& find_naming(ArtifactKind kind) {
  return *std::ranges::find(kNamings, kind, &Naming::kind);
}

}  // namespace

std::string Artifact::tag() const { return std::string(find_naming(kind).tag); }

std::string artifact_name(uint64_t step, const std::string& dataset, ArtifactKind kind) {
  return checkpoint::CheckpointStore::checkpoint_name(step) + "." + dataset + "." +
         std::string(find_naming(kind).file);
}

std::string artifact_path(const run::RunLayout& layout, uint64_t step, const std::string& dataset,
                          ArtifactKind kind) {
  return join_path(layout.eval_artifacts_dir(), artifact_name(step, dataset, kind));
}

Status write_artifacts(FileSystem& files, const run::RunLayout& layout, uint64_t step,
                       const std::string& dataset, const std::vector<Artifact>& artifacts) {
  for (const Naming& naming : kNamings) {
    const std::string path = artifact_path(layout, step, dataset, naming.kind);
    const auto view = std::ranges::find_if(artifacts, [&](const Artifact& one) {
      return one.dataset == dataset && one.kind == naming.kind;
    });
    if (view != artifacts.end()) {
      STOKER_RETURN_IF_ERROR(make_directories(files, layout.eval_artifacts_dir()));
      STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, view->bytes));
      continue;
    }
    const Status removed = files.remove_file(path);
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  }
  return {};
}

std::vector<Artifact> read_artifacts(const run::RunLayout& layout, uint64_t step,
                                     const std::string& dataset) {
  std::vector<Artifact> artifacts;
  for (const Naming& naming : kNamings) {
    auto bytes = read_file(artifact_path(layout, step, dataset, naming.kind), kMaxArtifactBytes);
    if (bytes.ok()) artifacts.push_back({dataset, naming.kind, *std::move(bytes)});
  }
  return artifacts;
}

}  // namespace stoker::evaluator

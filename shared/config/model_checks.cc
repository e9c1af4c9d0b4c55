#include "shared/config/model_checks.h"

#include <algorithm>
#include <array>
#include <string>

namespace stoker::config {
namespace {

constexpr auto kResnetDepths =
    std::to_array<int64_t>({8, 14, 18, 20, 32, 34, 44, 50, 56, 101, 152});
constexpr auto kVggDepths = std::to_array<int64_t>({11, 13, 16, 19});

class ModelChecks {
 public:
  ModelChecks(const ModelConfig& model, const GivenKeys& given, Mistakes& mistakes)
      : model_(model), given_(given), mistakes_(mistakes) {}

  void run() {
    if (!mistakes_.touches("model.kind")) check_size();
    check_init();
  }

 private:
  void refuse(const std::string& key, const std::string& what) {
    if (!mistakes_.touches(key)) mistakes_.add(given_.place_of(key), key, what);
  }

  void check_size() {
    const bool has_heads = model_.kind == ModelKind::kGpt || model_.kind == ModelKind::kVit;
    if (has_heads && model_.width % model_.heads != 0 && !mistakes_.touches("model.heads"))
      refuse("model.width", "is " + std::to_string(model_.width) +
                                ", not a multiple of model.heads (" + std::to_string(model_.heads) +
                                ")");
    if (model_.kind == ModelKind::kResnet && !std::ranges::count(kResnetDepths, model_.layers))
      refuse("model.layers", "is " + std::to_string(model_.layers) +
                                 "; a resnet has 8, 14, 20, 32, 44 or 56 layers (small pictures) "
                                 "or 18, 34, 50, 101 or 152");
    if (model_.kind == ModelKind::kLayers && model_.stack.empty())
      refuse("model.stack",
             "is missing; name the layers, such as [{kind: flatten}, {kind: linear}]");
    if (model_.is_from_file() && model_.path.empty())
      refuse("model.path",
             model_.kind == ModelKind::kPlugin
                 ? "is missing; name the shared object, such as my_model.so"
                 : "is missing; name the file of torch.jit.save, such as my_model.pt");
    if (model_.kind == ModelKind::kVgg && !std::ranges::count(kVggDepths, model_.layers))
      refuse("model.layers",
             "is " + std::to_string(model_.layers) + "; a vgg has 11, 13, 16 or 19 layers");
  }

  void check_init() {
    if (model_.init_from.empty()) {
      const std::string what =
          "means nothing without model.init_from; remove it, or say from where";
      if (!model_.init_map.empty()) refuse("model.init_map", what);
      if (!model_.init_ignore.empty()) refuse("model.init_ignore", what);
    }
    for (size_t i = 0; i < model_.init_map.size(); ++i) {
      const NameRule& rule = model_.init_map[i];
      if (std::ranges::count(rule.to, '*') > std::ranges::count(rule.from, '*'))
        refuse("model.init_map", "[" + std::to_string(i) + "].to has more * than from, " +
                                     quoted(rule.from) + ", which they stand for");
    }
  }

  const ModelConfig& model_;
  const GivenKeys& given_;
  Mistakes& mistakes_;
};

}  // namespace

void check_model(const ModelConfig& model, const GivenKeys& given, Mistakes& mistakes) {
  ModelChecks(model, given, mistakes).run();
}

}  // namespace stoker::config

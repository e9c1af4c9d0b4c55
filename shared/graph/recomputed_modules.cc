#include "shared/graph/recomputed_modules.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stoker::graph {
namespace {

using Kind = Argument::Kind;

template <typename Visit>
void for_each_reference(Argument& argument, const Visit& visit) {
  if (argument.kind == Kind::kValue || argument.kind == Kind::kTensor) visit(argument);
  for (Argument& item : argument.items) for_each_reference(item, visit);
}

template <typename Visit>
void for_each_reference(Node& node, const Visit& visit) {
  for (Argument& argument : node.arguments) for_each_reference(argument, visit);
  for (auto& [name, argument] : node.keyword_arguments) for_each_reference(argument, visit);
}

// Whether the result is a number; of the operators, those of sizes.
bool computes_number(const Node& node) {
  return node.kind == Node::Kind::kSize ? node.name != "getitem"
                                        : node.name.starts_with("aten::sym_");
}

class Folder {
 public:
  Folder(Program& program, const std::vector<std::string>& modules,
         const std::map<std::string, std::string>& operators)
      : program_(program), modules_(modules), operators_(operators) {}

  void fold() {
    std::vector<Node> nodes;
    std::vector<Node>& all = program_.graph.nodes;
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = region_end(begin);
      if (end == begin) {
        nodes.push_back(std::move(all[begin++]));
        continue;
      }
      hoist_numbers(begin, end, nodes);
      fold_region(end, nodes);
      begin = end;
    }
    all = std::move(nodes);
  }

 private:
  const std::string* module_of(const Node& node) const {
    const auto contains = [&](const std::string& module) {
      return node.module == module || node.module.starts_with(module + '.');
    };
    const auto found = std::ranges::find_if(modules_, contains);
    return found == modules_.end() ? nullptr : &*found;
  }

  // The end of the nodes of one module from `begin` on, with the numbers computed in between.
  size_t region_end(size_t begin) const {
    const std::vector<Node>& all = program_.graph.nodes;
    const std::string* const module = module_of(all[begin]);
    size_t end = begin;
    if (module == nullptr) return end;
    for (size_t next = begin; next < all.size(); ++next) {
      if (module_of(all[next]) == module)
        end = next + 1;
      else if (!computes_number(all[next]))
        break;
    }
    return end;
  }

  // Numbers that do not depend on the region come before it; the rest goes to region_.
  void hoist_numbers(size_t begin, size_t end, std::vector<Node>& before) {
    region_.clear();
    defined_.clear();
    for (size_t i = begin; i < end; ++i) {
      Node& node = program_.graph.nodes[i];
      bool depends = false;
      for_each_reference(node, [&](const Argument& a) {
        depends |= a.kind == Kind::kValue && defined_.contains(a.integer);
      });
      if (computes_number(node) && !depends) {
        before.push_back(std::move(node));
        continue;
      }
      defined_.insert(node.results.begin(), node.results.end());
      region_.push_back(std::move(node));
    }
  }

  std::set<int64_t> used_from(size_t next) {
    std::set<int64_t> used;
    const auto add = [&](const Argument& a) {
      if (a.kind == Kind::kValue && defined_.contains(a.integer)) used.insert(a.integer);
    };
    for (size_t i = next; i < program_.graph.nodes.size(); ++i)
      for_each_reference(program_.graph.nodes[i], add);
    for (Argument& output : program_.graph.outputs) for_each_reference(output, add);
    for (auto& [tensor, value] : program_.updates) for_each_reference(value, add);
    return used;
  }

  bool is_tensor(int64_t value) const {
    const auto defines = [&](const Node& node) {
      return std::ranges::find(node.results, value) != node.results.end();
    };
    const Node& node = *std::ranges::find_if(region_, defines);
    if (node.kind != Node::Kind::kOperator || computes_number(node)) return false;
    const std::string& schema = operators_.at(node.name);
    const size_t returns = schema.rfind("-> ");
    return returns != std::string::npos && schema.find("[]", returns) == std::string::npos;
  }

  void fold_region(size_t next, std::vector<Node>& nodes) {
    const std::set<int64_t> used = used_from(next);
    if (used.size() != 1 || !is_tensor(*used.begin())) {
      std::ranges::move(region_, std::back_inserter(nodes));
      return;
    }
    Node folded;
    folded.kind = Node::Kind::kRecompute;
    folded.name = "recompute";
    folded.module = region_.front().module;
    folded.results = {*used.begin()};
    Graph& graph = folded.graphs.emplace_back();
    std::map<std::pair<Kind, int64_t>, int64_t> inputs;
    for (Node& node : region_) {
      for_each_reference(node, [&](Argument& a) {
        if (a.kind == Kind::kValue && defined_.contains(a.integer)) return;
        const auto [input, is_new] =
            inputs.emplace(std::pair(a.kind, a.integer), program_.num_values);
        if (is_new) {
          ++program_.num_values;
          graph.inputs.push_back(input->second);
          folded.arguments.push_back(a);
        }
        a.kind = Kind::kValue;
        a.integer = input->second;
      });
      graph.nodes.push_back(std::move(node));
    }
    graph.outputs.push_back(
        {.kind = Kind::kValue, .integer = folded.results[0], .text = {}, .items = {}});
    nodes.push_back(std::move(folded));
  }

  Program& program_;
  const std::vector<std::string>& modules_;
  const std::map<std::string, std::string>& operators_;
  std::vector<Node> region_;   // the nodes of a module
  std::set<int64_t> defined_;  // their results
};

}  // namespace

void fold_modules(Program& program, const std::vector<std::string>& modules,
                  const std::map<std::string, std::string>& operators) {
  if (!modules.empty()) Folder(program, modules, operators).fold();
}

}  // namespace stoker::graph

#include "program.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "flambeau/package.h"

namespace flambeau {

using c10::IValue;

namespace {

struct Frame {
  std::vector<IValue> values;
  const Kernels* kernels;
};

}  // namespace

class Expression {
 public:
  using Function = IValue (*)(const Expression&, Frame&);
  Function function = nullptr;
  std::vector<Expression> parts;
  IValue constant;
  size_t place = 0;
  std::optional<c10::OperatorHandle> op;
  std::vector<size_t> where;  // the argument of the operator that each part is

  IValue value(Frame& frame) const { return function(*this, frame); }
  IValue part(size_t k, Frame& frame) const { return parts.at(k).value(frame); }
  at::Tensor tensor(size_t k, Frame& frame) const { return part(k, frame).toTensor(); }
  int64_t whole(size_t k, Frame& frame) const { return part(k, frame).toInt(); }
  std::vector<int64_t> sizes(size_t k, Frame& frame) const {
    std::vector<int64_t> made;
    for (const Expression& each : parts.at(k).parts) made.push_back(each.value(frame).toInt());
    return made;
  }
};

struct Program::Step {
  enum Kind { assign, free, run, when, give } kind;
  std::vector<size_t> places;
  std::vector<Expression> values;
};

namespace {

using Places = std::map<std::string, size_t>;

[[noreturn]] void unknown(const std::string& what) {
  throw Error("the program of the package has " + what +
              ", which this version does not know: use that which made the package");
}

// --- types of arguments --------------------------------------------------------------------------

template <typename T>
IValue typed(const IValue& list, T (*convert)(const IValue&)) {
  c10::List<T> made;
  for (const IValue& each : list.toListRef()) made.push_back(convert(each));
  return made;
}

double real(const IValue& value) {
  return value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
}

// A value as an argument of this type is passed.
IValue as(const IValue& value, const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::OptionalType) {
    return value.isNone() ? value : as(value, type->expectRef<c10::OptionalType>().getElementType());
  }
  if (type->kind() == c10::TypeKind::FloatType && value.isInt()) return real(value);
  if (type->kind() == c10::TypeKind::TensorType && value.isScalar()) {
    at::Tensor made = at::scalar_tensor(value.toScalar(), value.isInt() ? at::kLong : at::kDouble);
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }
  if (type->kind() != c10::TypeKind::ListType || !value.isList()) return value;
  const c10::TypePtr& of = type->expectRef<c10::ListType>().getElementType();
  switch (of->kind()) {
    case c10::TypeKind::IntType:
      return typed<int64_t>(value, [](const IValue& x) { return x.toInt(); });
    case c10::TypeKind::FloatType:
      return typed<double>(value, real);
    case c10::TypeKind::BoolType:
      return typed<bool>(value, [](const IValue& x) { return x.toBool(); });
    case c10::TypeKind::TensorType:
      return typed<at::Tensor>(value, [](const IValue& x) { return x.toTensor(); });
    case c10::TypeKind::OptionalType:
      return typed<std::optional<at::Tensor>>(
          value, [](const IValue& x) { return x.toOptional<at::Tensor>(); });
    case c10::TypeKind::NumberType:
      return typed<at::Scalar>(value, [](const IValue& x) { return x.toScalar(); });
    default:
      unknown("a list of " + of->str());
  }
}

// --- what expressions do -------------------------------------------------------------------------

IValue constant(const Expression& e, Frame&) { return e.constant; }
IValue variable(const Expression& e, Frame& f) { return f.values[e.place]; }

IValue list(const Expression& e, Frame& f) {
  c10::impl::GenericList made(c10::AnyType::get());
  for (const Expression& each : e.parts) made.push_back(each.value(f));
  return made;
}

IValue call(const Expression& e, Frame& f) {
  const auto& arguments = e.op->schema().arguments();
  torch::jit::Stack stack(arguments.size());
  std::vector<bool> given(arguments.size());
  for (size_t k = 0; k < e.parts.size(); k++) {
    stack[e.where[k]] = as(e.part(k, f), arguments[e.where[k]].type());
    given[e.where[k]] = true;
  }
  for (size_t k = 0; k < arguments.size(); k++) {
    if (!given[k]) stack[k] = *arguments[k].default_value();
  }
  e.op->callBoxed(&stack);
  if (stack.size() == 1) return stack[0];
  c10::impl::GenericList made(c10::AnyType::get());
  for (IValue& each : stack) made.push_back(std::move(each));
  return made;
}

IValue item(const Expression& e, Frame& f) {
  const IValue from = e.part(0, f);
  return from.toListRef().at(static_cast<size_t>(e.whole(1, f)));
}

IValue kernel(const Expression& e, Frame& f) {
  std::vector<int64_t> given;
  for (size_t k = 1; k < e.parts.size(); k++) given.push_back(e.whole(k, f));
  return f.kernels->call(static_cast<size_t>(e.parts[0].constant.toInt()), given);
}

IValue empty(const Expression& e, Frame& f) {
  const auto dtype = static_cast<at::ScalarType>(e.whole(2, f));
  return at::empty_strided(e.sizes(0, f), e.sizes(1, f), at::dtype(dtype));
}

IValue as_strided(const Expression& e, Frame& f) {
  return e.tensor(0, f).as_strided(e.sizes(1, f), e.sizes(2, f));
}

IValue seen_as(const Expression& e, Frame& f) {
  const at::Tensor of = e.tensor(0, f);
  return of.as_strided(e.sizes(1, f), e.sizes(2, f), of.storage_offset() + e.whole(3, f));
}

IValue reuse(const Expression& e, Frame& f) {
  const at::Tensor old = e.tensor(0, f);
  const auto dtype = static_cast<at::ScalarType>(e.whole(3, f));
  const at::Tensor same = old.scalar_type() == dtype ? old : old.view(dtype);
  return same.as_strided(e.sizes(1, f), e.sizes(2, f));
}

IValue laid_out(const Expression& e, Frame& f) {
  const at::Tensor value = e.tensor(0, f);
  const auto shape = e.sizes(1, f), stride = e.sizes(2, f);
  const auto dtype = static_cast<at::ScalarType>(e.whole(3, f));
  const bool eager = e.parts.size() > 4 && e.part(4, f).toBool();
  if (value.sizes() != at::IntArrayRef(shape) || value.scalar_type() != dtype) {
    throw Error("an operator of this torch gives a result of another shape or dtype than that of the "
                "torch which made the package");
  }
  bool moved = false;
  for (size_t d = 0; d < shape.size(); d++) {
    moved |= shape[d] > 1 && value.stride(static_cast<int64_t>(d)) != stride[d];
  }
  if (!moved || value.numel() == 0) return eager ? value : value.as_strided(shape, stride);
  std::vector<int64_t> once(shape);
  for (size_t d = 0; d < once.size(); d++) once[d] = stride[d] ? once[d] : 1;
  at::Tensor made = at::empty_strided(once, stride, at::dtype(dtype));
  made.copy_(value.as_strided(once, value.strides()));
  return made.expand(shape);
}

IValue scalar(const Expression& e, Frame& f) {
  return at::scalar_tensor(e.part(0, f).toScalar(), at::kDouble);
}

IValue check_index(const Expression& e, Frame& f) {
  const at::Tensor index = e.tensor(0, f);
  if (index.numel() == 0) return {};
  const int64_t low = e.whole(1, f), size = e.whole(2, f);
  const auto [least, most] = at::aminmax(index);
  int64_t wrong = least.item<int64_t>();
  if (wrong >= low) wrong = most.item<int64_t>();
  if (wrong >= low && wrong < size) return {};
  std::string message = e.part(4, f).toStringRef();
  for (const auto& [name, number] : {std::pair("{index}", wrong), std::pair("{size}", size)}) {
    const size_t at = message.find(name);
    if (at != std::string::npos) message.replace(at, std::string(name).size(), std::to_string(number));
  }
  throw Error(message);
}

IValue dense(const Expression& e, Frame& f) {
  const at::Tensor weight = e.tensor(0, f);
  return weight.is_contiguous() || weight.t().is_contiguous() ? weight : weight.contiguous();
}

IValue rows(const Expression& e, Frame& f) {
  const at::Tensor of = e.tensor(0, f);
  return of.stride(-1) == 1 ? of : of.contiguous();
}

IValue mask(const Expression& e, Frame& f) {
  const IValue of = e.part(0, f);
  if (of.isNone()) return of;
  const int64_t step = of.toTensor().stride(-1);
  return step == 0 || step == 1 ? of : IValue(of.toTensor().contiguous());
}

IValue address(const Expression& e, Frame& f) {
  return reinterpret_cast<int64_t>(e.tensor(0, f).data_ptr());
}

int64_t floor_of(int64_t a, int64_t b) {
  if (b == 0) throw Error("integer division by zero");
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

template <typename Whole, typename Real>
IValue arithmetic(const Expression& e, Frame& f, Whole whole, Real real_of) {
  IValue made = e.part(0, f);
  for (size_t k = 1; k < e.parts.size(); k++) {
    const IValue next = e.part(k, f);
    if (made.isInt() && next.isInt()) {
      made = whole(made.toInt(), next.toInt());
    } else {
      made = real_of(real(made), real(next));
    }
  }
  return made;
}

#define ARITHMETIC(text) \
  [](const Expression& e, Frame& f) { \
    return arithmetic(e, f, [](int64_t a, int64_t b) { return text; }, \
                      [](double a, double b) { return text; }); \
  }

const std::map<std::string, Expression::Function>& functions() {
  static const std::map<std::string, Expression::Function> table = {
      {"list", list}, {"item", item}, {"kernel", kernel}, {"empty", empty},
      {"as_strided", as_strided}, {"seen_as", seen_as}, {"reuse", reuse}, {"laid_out", laid_out},
      {"scalar", scalar}, {"check_index", check_index}, {"dense", dense}, {"rows", rows},
      {"mask", mask}, {"address", address},
      {"detach", [](const Expression& e, Frame& f) -> IValue { return e.tensor(0, f).detach(); }},
      {"size", [](const Expression& e, Frame& f) -> IValue {
         return e.tensor(0, f).size(e.whole(1, f)); }},
      {"stride", [](const Expression& e, Frame& f) -> IValue {
         return e.tensor(0, f).stride(e.whole(1, f)); }},
      {"float", [](const Expression& e, Frame& f) -> IValue { return real(e.part(0, f)); }},
      {"negative", [](const Expression& e, Frame& f) -> IValue {
         const IValue of = e.part(0, f);
         return of.isInt() ? IValue(-of.toInt()) : IValue(-of.toDouble()); }},
      {"not", [](const Expression& e, Frame& f) -> IValue { return !e.part(0, f).toBool(); }},
      {"and", [](const Expression& e, Frame& f) -> IValue {
         return std::all_of(e.parts.begin(), e.parts.end(),
                            [&](const Expression& each) { return each.value(f).toBool(); }); }},
      {"or", [](const Expression& e, Frame& f) -> IValue {
         return std::any_of(e.parts.begin(), e.parts.end(),
                            [&](const Expression& each) { return each.value(f).toBool(); }); }},
      {"+", ARITHMETIC(a + b)}, {"-", ARITHMETIC(a - b)}, {"*", ARITHMETIC(a * b)},
      {"max", ARITHMETIC(std::max(a, b))}, {"min", ARITHMETIC(std::min(a, b))},
      {"==", ARITHMETIC(a == b)}, {"!=", ARITHMETIC(a != b)}, {"<", ARITHMETIC(a < b)},
      {"<=", ARITHMETIC(a <= b)}, {">", ARITHMETIC(a > b)}, {">=", ARITHMETIC(a >= b)},
      {"/", [](const Expression& e, Frame& f) -> IValue {
         return real(e.part(0, f)) / real(e.part(1, f)); }},
      {"//", [](const Expression& e, Frame& f) -> IValue {
         return floor_of(e.whole(0, f), e.whole(1, f)); }},
      {"%", [](const Expression& e, Frame& f) -> IValue {
         const int64_t a = e.whole(0, f), b = e.whole(1, f);
         return a - floor_of(a, b) * b; }},
  };
  return table;
}

// --- preparation ---------------------------------------------------------------------------------

IValue torchs(const std::string& name) {
  static const std::map<std::string, IValue> others = {
      {"strided", static_cast<int64_t>(at::kStrided)},
      {"contiguous_format", static_cast<int64_t>(at::MemoryFormat::Contiguous)},
      {"preserve_format", static_cast<int64_t>(at::MemoryFormat::Preserve)},
      {"channels_last", static_cast<int64_t>(at::MemoryFormat::ChannelsLast)},
      {"channels_last_3d", static_cast<int64_t>(at::MemoryFormat::ChannelsLast3d)},
  };
  const auto found = others.find(name);
  if (found != others.end()) return found->second;
  const auto& dtypes = c10::getStringToDtypeMap();
  const auto dtype = dtypes.find(name);
  if (dtype == dtypes.end()) unknown("torch." + name);
  return static_cast<int64_t>(dtype->second);
}

Expression prepared(const Text& text, const Places& places);

Expression prepared_call(const Text& text, const Places& places) {
  const std::string &name = text.at(1).word, &overload = text.at(2).word;
  Expression made;
  made.function = call;
  made.op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!made.op) {
    throw Error("this libtorch has no operator " + name + (overload.empty() ? "" : "." + overload) +
                ": link with the library that registers it");
  }
  const auto& arguments = made.op->schema().arguments();
  std::vector<bool> given(arguments.size());
  const auto add = [&](const Text& value, size_t place) {
    if (place >= arguments.size()) unknown("more arguments of " + name);
    made.parts.push_back(prepared(value, places));
    made.where.push_back(place);
    given[place] = true;
  };
  const Text &in_order = text.at(3), &by_name = text.at(4);
  for (size_t k = 1; k < in_order.parts.size(); k++) add(in_order.parts[k], k - 1);
  for (size_t k = 1; k < by_name.parts.size(); k++) {
    const auto index = made.op->schema().argumentIndexWithName(by_name.parts[k].head());
    if (!index) unknown("the argument " + by_name.parts[k].head() + " of " + name);
    add(by_name.parts[k].at(1), static_cast<size_t>(*index));
  }
  for (size_t k = 0; k < arguments.size(); k++) {
    if (!given[k] && !arguments[k].default_value()) unknown(name + " without " + arguments[k].name());
  }
  return made;
}

Expression prepared(const Text& text, const Places& places) {
  Expression made;
  made.function = constant;
  switch (text.kind) {
    case Text::integer: made.constant = text.whole; return made;
    case Text::real: made.constant = text.number; return made;
    case Text::string: made.constant = text.word; return made;
    case Text::name: {
      if (text.word == "none") return made;
      if (text.word == "true" || text.word == "false") {
        made.constant = text.word == "true";
        return made;
      }
      const auto found = places.find(text.word);
      if (found == places.end()) unknown("the name " + text.word);
      made.function = variable;
      made.place = found->second;
      return made;
    }
    case Text::list: break;
  }
  const std::string& head = text.head();
  if (head == "call") return prepared_call(text, places);
  if (head == "torch") made.constant = torchs(text.at(1).word);
  if (head == "device") made.constant = c10::Device(text.at(1).word);
  if (head == "torch" || head == "device") return made;
  const auto found = functions().find(head);
  if (found == functions().end()) unknown(head);
  made.function = found->second;
  for (size_t k = 1; k < text.parts.size(); k++) made.parts.push_back(prepared(text.parts[k], places));
  return made;
}

}  // namespace

Program::Program(const std::vector<Text>& steps, Kernels kernels, const Values& constants)
    : kernels_(std::move(kernels)) {
  Places places;
  const auto place_of = [&](const std::string& name) {
    return places.emplace(name, places.size()).first->second;
  };
  for (const auto& [name, value] : constants) constants_.emplace_back(place_of(name), value);
  const std::function<Step(const Text&)> step_of = [&](const Text& text) {
    const std::string& head = text.head();
    Step made;
    if (head == "set") {
      made.kind = Step::assign;
      made.values.push_back(prepared(text.at(2), places));
      made.places.push_back(place_of(text.at(1).word));
    } else if (head == "do") {
      made.kind = Step::run;
      made.values.push_back(prepared(text.at(1), places));
    } else if (head == "free") {
      made.kind = Step::free;
      for (size_t k = 1; k < text.parts.size(); k++) made.places.push_back(place_of(text.parts[k].word));
    } else if (head == "if") {
      made.kind = Step::when;
      made.values.push_back(prepared(text.at(1), places));
      const Step inner = step_of(text.at(2));
      if (inner.kind != Step::run) unknown("a condition of " + text.at(2).head());
      made.values.push_back(inner.values.at(0));
    } else if (head == "return") {
      made.kind = Step::give;
      for (size_t k = 1; k < text.parts.size(); k++) made.values.push_back(prepared(text.parts[k], places));
    } else {
      unknown("the step " + head);
    }
    return made;
  };
  for (const Text& text : steps) {
    if (text.head() == "inputs") {
      for (size_t k = 1; k < text.parts.size(); k++) inputs_.push_back(place_of(text.parts[k].word));
    } else {
      steps_.push_back(step_of(text));
    }
  }
  places_ = places.size();
}

Program::~Program() = default;

std::vector<IValue> Program::run(std::vector<IValue>& inputs) const {
  Frame frame{std::vector<IValue>(places_), &kernels_};
  if (inputs.size() != inputs_.size()) throw Error("the program of the package takes other inputs");
  for (const auto& [place, value] : constants_) frame.values[place] = value;
  for (size_t k = 0; k < inputs.size(); k++) frame.values[inputs_[k]] = std::move(inputs[k]);
  inputs.clear();
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::assign: frame.values[step.places[0]] = step.values[0].value(frame); break;
      case Step::run: step.values[0].value(frame); break;
      case Step::free:
        for (size_t place : step.places) frame.values[place] = {};
        break;
      case Step::when: {
        const IValue looked = step.values[0].value(frame);
        if (looked.isBool() ? looked.toBool() : looked.toInt() != 0) step.values[1].value(frame);
        break;
      }
      case Step::give: {
        std::vector<IValue> made;
        for (const Expression& each : step.values) made.push_back(each.value(frame));
        return made;
      }
    }
  }
  throw Error("the program of the package returns nothing");
}

IValue evaluated(const Text& text, const Values& values) {
  Places places;
  Frame frame{{}, nullptr};
  for (const auto& [name, value] : values) {
    places.emplace(name, frame.values.size());
    frame.values.push_back(value);
  }
  return prepared(text, places).value(frame);
}

}  // namespace flambeau

// Runs a program that `rlx_wgpu.export` wrote, in any browser with WebGPU. No dependencies.
//
//   const program = await load("site");
//   const { digit } = await program.run({ x: new Float32Array(64) });

const NO_FAULT = 0xffffffff;

const ARRAYS = {
  f32: Float32Array, i32: Int32Array, u32: Uint32Array, i64: BigInt64Array, u64: BigUint64Array,
  i16: Int16Array, u16: Uint16Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, u8: Uint8Array, bool: Uint8Array,
};

const size = (shape) => shape.reduce((product, extent) => product * extent, 1);
const words = (nbytes) => Math.ceil(nbytes / 4) * 4;

// The index outside that the words of one check say, if there was one: its place first, then which words hold that place too.
function faultyIndex([place, ...bits]) {
  if (place === NO_FAULT) return undefined;
  if (place === NO_FAULT - 1) return "(not known)";
  return BigInt.asIntN(64, bits.reduce((sum, word, bit) => sum | (word === place ? 1n << BigInt(bit) : 0n), 0n));
}

export async function load(folder) {
  const [form, contents] = await Promise.all([
    fetched(`${folder}/program.json`).then((found) => found.json()),
    fetched(`${folder}/program.bin`).then((found) => found.arrayBuffer()),
  ]);
  return Program.on(await device(form.heap), form, contents);
}

async function fetched(url) {
  const found = await fetch(url);
  if (!found.ok) throw new Error(`${url}: ${found.status} ${found.statusText}`);
  return found;
}

// A device whose bindings hold the heap: without asking, one has 128 MiB, whatever the GPU could.
async function device(heap) {
  if (!navigator.gpu) throw new Error("this browser has no WebGPU");
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) throw new Error("WebGPU found no GPU");
  const needed = { maxStorageBufferBindingSize: heap, maxBufferSize: heap };
  for (const [name, least] of Object.entries(needed)) {
    if (adapter.limits[name] < least) throw new Error(`${name} is ${adapter.limits[name]} here; the program needs ${least}`);
  }
  return adapter.requestDevice({ requiredLimits: needed });
}

export class Program {
  static async on(device, form, contents) {
    if (form.format !== "rlx-webgpu-1") throw new Error(`the format is ${form.format}; this loader reads rlx-webgpu-1`);
    const made = new Program();
    Object.assign(made, { device, form });
    await made.#prepare(contents);
    return made;
  }

  async #prepare(contents) {
    const { device, form } = this;
    const { STORAGE, UNIFORM, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    const buffer = (nbytes, usage) => device.createBuffer({ size: Math.max(words(nbytes), 16), usage });
    this.heap = buffer(form.heap, STORAGE | COPY_SRC | COPY_DST);
    this.status = buffer(form.status, STORAGE | COPY_SRC | COPY_DST);
    this.results = buffer(words(form.status) + this.#outputBytes(), MAP_READ | COPY_DST);
    for (const { from, nbytes, offset } of form.contents) {
      device.queue.writeBuffer(this.heap, offset, contents, from, words(nbytes));
    }
    const types = ["storage", "uniform", "storage"];
    const layout = device.createBindGroupLayout({
      entries: types.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } })),
    });
    const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout] });
    const modules = form.sources.map((code) => device.createShaderModule({ code }));
    const pipelines = new Map();
    const pipeline = (source, entryPoint) => {
      const key = `${source} ${entryPoint}`;
      if (!pipelines.has(key)) {
        const compute = { module: modules[source], entryPoint };
        pipelines.set(key, device.createComputePipelineAsync({ layout: pipelineLayout, compute }));
      }
      return pipelines.get(key);
    };
    this.steps = await Promise.all(form.steps.map(async ({ source, entry, groups, places }) => {
      const uniform = buffer(4 * places.length, UNIFORM | COPY_DST);
      device.queue.writeBuffer(uniform, 0, new Uint32Array(places));
      const entries = [this.heap, uniform, this.status].map((each, binding) => ({ binding, resource: { buffer: each } }));
      return { pipeline: await pipeline(source, entry), group: device.createBindGroup({ layout, entries }), groups };
    }));
  }

  // Named typed arrays in, named typed arrays out.
  async run(inputs) {
    const { device, form } = this;
    for (const { name, dtype, shape, offset } of form.inputs) {
      const given = inputs[name];
      if (!(given instanceof ARRAYS[dtype]) || given.length !== size(shape)) {
        throw new TypeError(`${name} is ${dtype}[${shape}]: a ${ARRAYS[dtype].name} of ${size(shape)}`);
      }
      if (offset === null) continue;  // nothing reads it
      const raw = new Uint8Array(words(given.byteLength));
      raw.set(new Uint8Array(given.buffer, given.byteOffset, given.byteLength));
      device.queue.writeBuffer(this.heap, offset, raw);
    }
    device.queue.writeBuffer(this.status, 0, new Uint32Array(this.status.size / 4).fill(NO_FAULT));
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, groups } of this.steps) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(groups);
    }
    pass.end();
    if (form.status) encoder.copyBufferToBuffer(this.status, 0, this.results, 0, words(form.status));
    let at = words(form.status);
    const found = {};
    for (const { name, dtype, shape, offset } of form.outputs) {
      const nbytes = size(shape) * ARRAYS[dtype].BYTES_PER_ELEMENT;
      encoder.copyBufferToBuffer(this.heap, offset, this.results, at, words(nbytes));
      found[name] = { at, nbytes, dtype };
      at += words(nbytes);
    }
    device.queue.submit([encoder.finish()]);
    await this.results.mapAsync(GPUMapMode.READ);
    const bytes = this.results.getMappedRange().slice(0);
    this.results.unmap();
    const faults = new Uint32Array(bytes, 0, words(form.status) / 4);
    form.faults.forEach(({ message, where }, number) => {
      const index = faultyIndex(faults.subarray(number * form.faultWords, (number + 1) * form.faultWords));
      if (index !== undefined) throw new RangeError(`${message.replace("{}", index)} (${where})`);
    });
    const array = ({ at, nbytes, dtype }) => new ARRAYS[dtype](bytes.slice(at, at + nbytes));
    return Object.fromEntries(Object.entries(found).map(([name, each]) => [name, array(each)]));
  }

  #outputBytes() {
    return this.form.outputs.reduce((sum, { dtype, shape }) => sum + words(size(shape) * ARRAYS[dtype].BYTES_PER_ELEMENT), 0);
  }
}

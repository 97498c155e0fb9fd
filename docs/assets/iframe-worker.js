// In a query, the hyphen of `split-K` does not end a word. Queries are messages of type 2;
// they are read twice, and each reading takes a backslash before the hyphen.
const asked = message => message.type === 2
  ? { ...message, data: message.data.replace(/(\w)-k\b/gi, "$1\\\\\\-k") } : message

// A page opened as a file may not start workers: run the worker's script in a hidden frame instead.
if (location.protocol === "file:") {
  self.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = null
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.ready = new Promise(done => {
        frame.onload = () => {
          const inner = frame.contentWindow
          inner.postMessage = data => {
            const event = new MessageEvent("message", { data })
            this.dispatchEvent(event)
            if (this.onmessage) this.onmessage(event)
          }
          const script = inner.document.createElement("script")
          script.src = url
          script.onload = () => done(inner)
          inner.document.body.append(script)
        }
      })
      document.body.append(frame)
      this.frame = frame
    }
    postMessage(message) {
      const data = asked(message)
      this.ready.then(inner => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
  self.Worker = self.IFrameWorker
} else {
  self.Worker = class extends Worker {
    postMessage(message, ...rest) {
      super.postMessage(asked(message), ...rest)
    }
  }
}
